/**
 * Port to a forge: finds the open pull request of a branch, or opens one. It has only two operations, so that any forge
 * can implement it.
 */
import { Context, type Effect, Layer } from "effect"
import { PullRequestFailed } from "../GitRelayError.ts"

export interface PullRequestTarget {
  /** URL of the repository, as in `CloneRequest`; never a local path. */
  readonly url: string
  readonly baseBranch: string
  readonly branch: string
}

export interface OpenPullRequest {
  readonly url: string
  readonly number: number
}

export interface NewPullRequest {
  readonly title: string
  readonly body: string
  readonly draft: boolean
}

export class PullRequests extends Context.Service<
  PullRequests,
  {
    /** Returns the open pull request from the branch to the base, if there is one. */
    readonly find: (
      target: PullRequestTarget
    ) => Effect.Effect<OpenPullRequest | undefined, PullRequestFailed>
    /** Opens a pull request. Fails if one is already open; call `find` first. */
    readonly create: (
      target: PullRequestTarget,
      text: NewPullRequest
    ) => Effect.Effect<OpenPullRequest, PullRequestFailed>
  }
>()("@cogni/sandbox-git-relay/forge/PullRequests") {}

const refuse = () =>
  new PullRequestFailed({
    detail: "no forge is configured",
    remedy: "Provide a PullRequests layer, or open it by hand"
  })

/** Fails every operation. */
export const layerNoop: Layer.Layer<PullRequests> = Layer.succeed(PullRequests, {
  find: refuse,
  create: refuse
})
