/**
 * `Repositories` over the git relay: clones the origin before a run, and delivers the commits after it.
 *
 * A caller over HTTP must not learn anything about this host's network. Only repositories on forges that the operator
 * allows are accepted. Every kind of unreachable origin gives the same error at the same point, so a caller cannot
 * learn which forges are allowed. Paths, and servers on this host's loopback, are refused unless enabled.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type CloneRequest } from "@cogni/sandbox-git-relay/RelaySteps"
import * as OriginAddress from "@cogni/sandbox-git-relay/OriginAddress"
import { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import { BaseBranch, BranchName, isLocal, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import * as RelaySteps from "@cogni/sandbox-git-relay/RelaySteps"
import * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import { Repositories } from "@cogni/sandbox-graph-provider/Repositories"
import { type RepositoryRequest, RepositoryUnavailable } from "@cogni/sandbox-graph-provider/RepositoryUse"
import { type RepositoryDelivery } from "@cogni/sandbox-graph-provider/RepositoryUse"
import { Effect, Layer, Result, Schema } from "effect"
import * as RelayWords from "./internal/RelayWords.ts"

export interface RelayRepositoriesOptions {
  /** Forges whose repositories are allowed. Default: `OriginAddress.defaultForges`. */
  readonly forges?: ReadonlyArray<OriginAddress.ForgeHost> | undefined
  /** Allows repositories on this host, by path or over http on its loopback. Default: false. */
  readonly hostOrigins?: boolean | undefined
}

/** The fields of a clone request that come from the caller. */
type RelayRequest = Pick<CloneRequest, "url" | "baseBranch" | "branch" | "createPr" | "depth">

/** Validates a request and converts it for the relay. */
export const requestOf = (
  { baseBranch, branch, depth, pullRequest, url }: RepositoryRequest,
  { forges = OriginAddress.defaultForges, hostOrigins = false }: RelayRepositoriesOptions = {}
): Result.Result<RelayRequest, RepositoryUnavailable> => {
  if (!Schema.is(OriginUrl)(url)) {
    return refuse(
      "OriginRefused",
      "the repository's url is not a plain https URL. Write https://HOST/OWNER/NAME, without a user, a query or a fragment"
    )
  }
  if (pullRequest === true && isLocal(url)) {
    return refuse("OriginRefused", "a directory of this host has no pull requests. Omit pullRequest")
  }
  if (baseBranch !== undefined && !Schema.is(BaseBranch)(baseBranch)) {
    return refuse("BranchRefused", "baseBranch is not a valid branch name, such as main or release/1.2")
  }
  const to = branch === undefined || branch.startsWith("sandbox/") ? branch : `sandbox/${branch}`
  if (to !== undefined && !Schema.is(BranchName)(to)) {
    return refuse(
      "BranchRefused",
      "branch is not valid for a run. Use letters, digits, dots, underscores and hyphens; it is created below sandbox/"
    )
  }
  // Last, so that other errors in the request are the same for a forge that is not allowed.
  const isHosts = isLocal(url) || url.startsWith("http://")
  if (isHosts ? !hostOrigins : OriginAddress.forgeOf(url, forges) === undefined) {
    return refuse(RelayWords.notReached, RelayWords.unreachable)
  }
  return Result.succeed({
    url,
    ...(baseBranch === undefined ? {} : { baseBranch }),
    ...(to === undefined ? {} : { branch: to }),
    ...(depth === undefined ? {} : { depth }),
    ...(pullRequest === true ? { createPr: true } : {})
  })
}

/** Converts a delivery for the graph's caller. */
const deliveryOf = (delivery: DeliveryRecord.Delivery): RepositoryDelivery => {
  const record = DeliveryRecord.recordOf(delivery)
  const { branch, pullRequestUrl } = record
  const told = {
    branch,
    pullRequestUrl,
    record: encodeRecord(record),
    annotations: RelayWords.changesOf(delivery)
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
      return { ...told, status: "failed", problem: RelayWords.problemOf(delivery.error) }
  }
}

export const layer = (options: RelayRepositoriesOptions = {}): Layer.Layer<Repositories, never, GitRelay> =>
  Layer.effect(
    Repositories,
    Effect.map(GitRelay, (relay) =>
      Repositories.of({
        // A server that is not allowed fails at the same point as one that cannot be reached: in the run.
        check: (request) =>
          Effect.fromResult(requestOf(request, options)).pipe(
            Effect.asVoid,
            Effect.catchIf(
              ({ reason }) => reason === RelayWords.notReached,
              () => Effect.void
            )
          ),
        inClone: ({ runId, salvaged, ...request }) =>
          Effect.fnUntraced(function* (canaries, use) {
            const asked = yield* Effect.fromResult(requestOf(request, options)).pipe(
              Effect.tapError(() => Effect.logWarning("repository refused", "its server is not allowed"))
            )
            const { delivery, value } = yield* RelayRun.around(
              {
                ...asked,
                runId,
                canaries,
                deliver: "push",
                keepPatch: true,
                uncommittedMessage: RelaySteps.defaultUncommittedMessage
              },
              (clone, began) =>
                use(
                  {
                    workspacePath: clone.workspacePath,
                    within: (argv) => RelayRun.inRepository(argv, RelaySteps.defaultUncommittedMessage)
                  },
                  began
                ),
              (delivery) =>
                Effect.andThen(loggedKept(delivery), salvaged?.(deliveryOf(delivery)) ?? Effect.void)
            ).pipe(Effect.provideService(GitRelay, relay), Effect.catchIf(isRelayError, RelayWords.refusedBy))
            if (delivery._tag === "Failed") yield* RelayWords.logged(delivery.error)
            return { value, delivery: deliveryOf(delivery) }
          })
      })
    )
  )

const refuse = (reason: string, detail: string) => Result.fail(new RepositoryUnavailable({ reason, detail }))

/** Logs where the work of a failed run is kept, for the operator. */
const loggedKept = (delivery: DeliveryRecord.Delivery) => {
  const { branch, keptAt, message } = DeliveryRecord.recordOf(delivery)
  return keptAt === undefined
    ? Effect.void
    : Effect.logWarning(
        `the work for ${branch} is kept in ${keptAt}, not delivered${message === undefined ? "" : `: ${message}`}. To deliver it, use ${named("GitRelay.reopen")}`
      )
}

const isRelayError = (error: unknown): error is GitRelayError => error instanceof GitRelayError

const encodeRecord = Schema.encodeSync(Schema.toCodecJson(DeliveryRecord.DeliveryRecord))
