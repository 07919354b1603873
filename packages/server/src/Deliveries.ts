/**
 * Port that delivers the kept commits of a run again, and its implementation over the git relay.
 *
 * The same forges are allowed as for a new run: an operator may have removed one since.
 */
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import type { RepositoryUnavailable } from "@cogni/sandbox-graph-provider/RepositoryUse"
import { Context, Effect, Layer, type Schema } from "effect"
import * as RelayWords from "./internal/RelayWords.ts"
import * as RelayRepositories from "./RelayRepositories.ts"

/** The outcome of a repeated delivery. */
export interface Redelivery {
  readonly record: DeliveryRecord.DeliveryRecord
  /** Further annotations of the run's record: what the commits change. */
  readonly annotations?: Readonly<Record<string, Schema.Json>> | undefined
  /** Why the commits were not delivered, and are still kept. */
  readonly problem?:
    | { readonly reason: string; readonly message: string; readonly isRetryable?: boolean }
    | undefined
}

export class Deliveries extends Context.Service<
  Deliveries,
  {
    /** Resumes the delivery of a run that has ended. Fails if this host keeps no commits of it. */
    readonly retry: (record: RunRecord) => Effect.Effect<Redelivery, RepositoryUnavailable>
  }
>()("@cogni/sandbox-server/Deliveries") {}

export interface DeliveriesOptions extends RelayRepositories.RelayRepositoriesOptions {
  /** Runs before a delivery. Containers of a dead process may still change the workspace: remove them here. */
  readonly before?: Effect.Effect<void> | undefined
}

export const layer = (options: DeliveriesOptions = {}): Layer.Layer<Deliveries, never, GitRelay> =>
  Layer.effect(
    Deliveries,
    Effect.map(GitRelay, (relay) =>
      Deliveries.of({
        retry: Effect.fn("Deliveries.retry")(function* ({ llm, runId }) {
          yield* options.before ?? Effect.void
          const delivery = yield* Effect.gen(function* () {
            const clone = yield* relay.reopen(runId)
            yield* Effect.fromResult(RelayRepositories.requestOf({ url: clone.request.url }, options))
            return yield* RelayRun.deliver(
              clone,
              // The process may have died before it committed these changes, which would otherwise be lost.
              { deliver: "push", keepPatch: true, uncommittedMessage: clone.request.uncommittedMessage },
              llm?.auditHead
            ).pipe(
              Effect.catchTag("GitRelayError", (error) =>
                Effect.succeed<DeliveryRecord.Delivery>({ _tag: "Failed", clone, error })
              )
            )
          }).pipe(
            Effect.scoped,
            Effect.provideService(GitRelay, relay),
            Effect.catchTag("GitRelayError", RelayWords.refusedBy)
          )
          if (delivery._tag === "Failed") yield* RelayWords.logged(delivery.error)
          return {
            record: DeliveryRecord.recordOf(delivery),
            annotations: RelayWords.changesOf(delivery),
            ...(delivery._tag === "Failed"
              ? {
                  problem: {
                    ...RelayWords.problemOf(delivery.error),
                    isRetryable: delivery.error.isRetryable
                  }
                }
              : {})
          }
        })
      })
    )
  )
