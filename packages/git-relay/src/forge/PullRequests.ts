/**
 * The port to a forge: whether a pull request is open for a branch, and opening one. Two operations, so that any forge
 * fits behind it.
 */
import { Context, type Effect, Layer } from "effect"
import { PullRequestFailed } from "../GitRelayError.ts"

export interface PullRequestTarget {
  /** Of the repository, as in `CloneRequest`; never a local path. */
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
    /** The one that is open from the branch to the base, if there is one. */
    readonly find: (
      target: PullRequestTarget
    ) => Effect.Effect<OpenPullRequest | undefined, PullRequestFailed>
    /** Open one. Where one is open already, that is a failure: ask `find`. */
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

/** No forge. */
export const layerNoop: Layer.Layer<PullRequests> = Layer.succeed(PullRequests, {
  find: refuse,
  create: refuse
})
