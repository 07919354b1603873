/**
 * Repositories of runs over the git relay: a clone before, the commits sent on after.
 *
 * Whoever asks over HTTP is not on this host, and must not reach what is: a path, and an origin at an address of this
 * host's own, are refused unless they are switched on.
 */
import { type CloneRequest, GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import { BaseBranch, BranchName, isLocal, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import {
  Repositories,
  type RepositoryDelivery,
  type RepositoryRequest,
  RepositoryUnavailable
} from "@cogni/sandbox-graph-provider/Repositories"
import { Effect, Layer, Result, Schema } from "effect"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export interface RelayRepositoriesOptions {
  /** Also repositories that lie on this host, or are served on its loopback. Absent: false. */
  readonly hostOrigins?: boolean | undefined
}

/** A request in the relay's words. @category models */
export type RelayRequest = Pick<CloneRequest, "url" | "baseBranch" | "branch" | "createPr">

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** The request as the relay understands it, or why it does not. @category constructors */
export const requestOf = (
  { baseBranch, branch, pullRequest, url }: RepositoryRequest,
  { hostOrigins = false }: RelayRepositoriesOptions = {}
): Result.Result<RelayRequest, RepositoryUnavailable> => {
  if (!Schema.is(OriginUrl)(url)) {
    return refuse(
      "OriginRefused",
      "the repository's url is no https URL of a plain kind. Write https://HOST/OWNER/NAME, without a user, a query or a fragment"
    )
  }
  if (!hostOrigins && (isLocal(url) || isHostsOwn(url))) {
    return refuse(
      "OriginRefused",
      "the repository lies on this server's host. Name one that others can reach as well"
    )
  }
  if (pullRequest === true && isLocal(url)) {
    return refuse("OriginRefused", "a directory of this host has no pull requests. Leave pullRequest out")
  }
  if (baseBranch !== undefined && !Schema.is(BaseBranch)(baseBranch)) {
    return refuse("BranchRefused", "baseBranch is no plain branch name. Name one such as main or release/1.2")
  }
  const to = branch === undefined || branch.startsWith("sandbox/") ? branch : `sandbox/${branch}`
  if (to !== undefined && !Schema.is(BranchName)(to)) {
    return refuse(
      "BranchRefused",
      "branch is none that a run may have. Use letters, digits, dots, underscores and hyphens; it lies below sandbox/"
    )
  }
  return Result.succeed({
    url,
    ...(baseBranch === undefined ? {} : { baseBranch }),
    ...(to === undefined ? {} : { branch: to }),
    ...(pullRequest === true ? { createPr: true } : {})
  })
}

/** What became of the commits, as a graph's caller is told. @category converting */
export const deliveryOf = (delivery: RelayRun.Delivery): RepositoryDelivery => {
  const record = RelayRun.recordOf(delivery)
  const { branch, pullRequestUrl } = record
  const told = {
    branch,
    ...(pullRequestUrl === undefined ? {} : { pullRequestUrl }),
    record: encodeRecord(record)
  }
  switch (delivery._tag) {
    case "Skipped":
      return { ...told, status: "skipped" }
    case "Pushed":
      return { ...told, status: delivery.unchanged ? "unchanged" : "pushed" }
    case "Kept":
    case "Patched":
      return { ...told, status: "kept" }
    case "Failed":
      return { ...told, status: "failed", problem: problemOf(delivery.error) }
  }
}

/** @category layers */
export const layer = (options: RelayRepositoriesOptions = {}): Layer.Layer<Repositories, never, GitRelay> =>
  Layer.effect(
    Repositories,
    Effect.map(GitRelay, (relay) =>
      Repositories.of({
        check: (request) => Effect.asVoid(Effect.fromResult(requestOf(request, options))),
        around: Effect.fnUntraced(function* ({ canaries, runId, ...request }, use) {
          const asked = yield* Effect.fromResult(requestOf(request, options))
          const { delivery, value } = yield* RelayRun.around(
            { ...asked, runId, canaries, deliver: "push", commitLeftovers: RelayRun.leftoversMessage },
            (clone, began) =>
              use(
                {
                  workspacePath: clone.workspacePath,
                  within: (argv) => RelayRun.inRepository(argv, RelayRun.leftoversMessage)
                },
                began
              )
          ).pipe(
            Effect.provideService(GitRelay, relay),
            Effect.catchIf(isRelayError, (error) => Effect.fail(unavailable(error)))
          )
          return { value, delivery: deliveryOf(delivery) }
        })
      })
    )
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const refuse = (reason: string, detail: string) => Result.fail(new RepositoryUnavailable({ reason, detail }))

/**
 * Addresses that mean another machine on every host: loopback, none at all, link-local (where clouds keep a machine's
 * credentials). However they are spelt: `127.1` and `2130706433` are one address to a URL; `OriginUrl` has no brackets.
 */
const hostsOwn = /^(?:(?:.+\.)?localhost\.?|(?:0|127|169\.254)(?:\.\d{1,3}){2,3})$/u

const isHostsOwn = (url: string): boolean => hostsOwn.test(new URL(url).hostname)

const problemOf = ({ message, reason }: GitRelayError) => ({ reason: reason._tag, message })

const unavailable = (error: GitRelayError) =>
  new RepositoryUnavailable({ reason: error.reason._tag, detail: error.message })

const isRelayError = (error: unknown): error is GitRelayError => error instanceof GitRelayError

const encodeRecord = Schema.encodeSync(Schema.toCodecJson(RelayRun.DeliveryRecord))
