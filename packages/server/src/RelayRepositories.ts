/**
 * Repositories of runs over the git relay: a clone before, the commits sent on after.
 *
 * A caller over HTTP is not on this host, and must not learn what its network holds: repositories are those of the
 * forges that the operator allows, and every way of not reaching one is the same answer, in the same place: a caller
 * cannot tell which forges are allowed. A path, and a server on this host's loopback, are refused unless they are
 * switched on.
 */
import { type CloneRequest, GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as OriginAddress from "@cogni/sandbox-git-relay/OriginAddress"
import { GitRelayError, type OriginFault } from "@cogni/sandbox-git-relay/GitRelayError"
import { BaseBranch, BranchName, isLocal, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import {
  Repositories,
  type RepositoryDelivery,
  type RepositoryRequest,
  RepositoryUnavailable
} from "@cogni/sandbox-graph-provider/Repositories"
import { Effect, Layer, Result, Schema } from "effect"

export interface RelayRepositoriesOptions {
  /** Servers whose repositories may be named. Absent: `OriginAddress.defaultForges`. */
  readonly forges?: ReadonlyArray<OriginAddress.ForgeHost> | undefined
  /** Also repositories that lie on this host, or are served over http on its loopback. Absent: false. */
  readonly hostOrigins?: boolean | undefined
}

/** A request in the relay's words. */
export type RelayRequest = Pick<CloneRequest, "url" | "baseBranch" | "branch" | "createPr">

/** The request as the relay understands it, or why it does not. */
export const requestOf = (
  { baseBranch, branch, pullRequest, url }: RepositoryRequest,
  { forges = OriginAddress.defaultForges, hostOrigins = false }: RelayRepositoriesOptions = {}
): Result.Result<RelayRequest, RepositoryUnavailable> => {
  if (!Schema.is(OriginUrl)(url)) {
    return refuse(
      "OriginRefused",
      "the repository's url is no https URL of a plain kind. Write https://HOST/OWNER/NAME, without a user, a query or a fragment"
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
  // Last, so that what is wrong with its words is said of a forge that is not allowed as well.
  const isHosts = isLocal(url) || url.startsWith("http://")
  if (isHosts ? !hostOrigins : OriginAddress.forgeOf(url, forges) === undefined) {
    return refuse(notReached, unreachable)
  }
  return Result.succeed({
    url,
    ...(baseBranch === undefined ? {} : { baseBranch }),
    ...(to === undefined ? {} : { branch: to }),
    ...(pullRequest === true ? { createPr: true } : {})
  })
}

/** What became of the commits, as a graph's caller is told. */
const deliveryOf = (delivery: RelayRun.Delivery): RepositoryDelivery => {
  const record = RelayRun.recordOf(delivery)
  const { branch, pullRequestUrl } = record
  const told = {
    branch,
    pullRequestUrl,
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

export const layer = (options: RelayRepositoriesOptions = {}): Layer.Layer<Repositories, never, GitRelay> =>
  Layer.effect(
    Repositories,
    Effect.map(GitRelay, (relay) =>
      Repositories.of({
        // A server that is not allowed is answered where one is that cannot be reached: in the run.
        check: (request) =>
          Effect.fromResult(requestOf(request, options)).pipe(
            Effect.asVoid,
            Effect.catchIf(
              ({ reason }) => reason === notReached,
              () => Effect.void
            )
          ),
        inClone: ({ runId, ...request }) =>
          Effect.fnUntraced(function* (canaries, use) {
            const asked = yield* Effect.fromResult(requestOf(request, options)).pipe(
              Effect.tapError(() => Effect.logWarning("a repository", "callers may not name its server"))
            )
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
              Effect.catchIf(isRelayError, (error) =>
                Effect.andThen(logged(error), Effect.fail(unavailable(error)))
              )
            )
            if (delivery._tag === "Failed") yield* logged(delivery.error)
            return { value, delivery: deliveryOf(delivery) }
          })
      })
    )
  )

const refuse = (reason: string, detail: string) => Result.fail(new RepositoryUnavailable({ reason, detail }))

const notReached: GitRelayError["reason"]["_tag"] = "OriginUnavailable"

/** Closed, filtered, refused, unresolvable, not trusted, not allowed: all the same to a caller. */
const unreachable =
  "the repository cannot be reached from this server. Check its URL; only repositories of the forges that the operator allows are reached, over https"

/** What a forge that was reached says of a repository; everything else tells what there is at an address. */
const tellable: ReadonlySet<OriginFault> = new Set([
  "unauthorized",
  "forbidden",
  "not_found",
  "empty",
  "base_missing",
  "base_unnamed"
])

/** The error in words for somebody on another machine: none that tell a closed port from an open one. */
const messageOf = ({ message, reason }: GitRelayError): string => {
  switch (reason._tag) {
    case "OriginUnavailable":
      return tellable.has(reason.fault) ? message : unreachable
    case "PushRefused":
      return reason.fault === "unreachable" || reason.fault === "timeout" ? unreachable : message
    case "PullRequestFailed":
      return "the branch is pushed, and the pull request could not be opened. Open it by hand, or ask the operator, whose log says why"
    default:
      return message
  }
}

const problemOf = (error: GitRelayError) => ({ reason: error.reason._tag, message: messageOf(error) })

/** What is not told the caller is in the log, for the operator. */
const logged = (error: GitRelayError) =>
  messageOf(error) === error.message ? Effect.void : Effect.logWarning("a repository", error.message)

const unavailable = (error: GitRelayError) =>
  new RepositoryUnavailable({ reason: error.reason._tag, detail: messageOf(error) })

const isRelayError = (error: unknown): error is GitRelayError => error instanceof GitRelayError

const encodeRecord = Schema.encodeSync(Schema.toCodecJson(RelayRun.DeliveryRecord))
