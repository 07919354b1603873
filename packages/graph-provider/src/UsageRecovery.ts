/**
 * Tells the observer about runs whose host process died before it could: usage that would otherwise never be billed.
 *
 * The providers do this when they are built and every 10 minutes after that, so a program need not. A run is marked in
 * its `RunStore` before it can use anything, until its observer has accepted the usage. Its record or its audit has the
 * usage. Only one of several concurrent recoveries reports a run.
 *
 * **Gotchas** If a process dies after the observer has accepted and before this is noted, the observer hears the same
 * facts again, under the same keys. No order of two writes avoids that. A ledger counts each key once.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore, type RunStoreError } from "@cogni/sandbox-core/RunStore"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Data, Effect, Schema } from "effect"
import * as UsageFact from "./events/UsageFact.ts"
import { GraphId } from "./graphs/GraphId.ts"
import { GraphObserver, type ObservedEnd } from "./graphs/GraphObserver.ts"
import { patience } from "./internal/Observation.ts"

/**
 * Returns the usage facts of a run from its traffic, such as that of its audit: `AuditTraffic.reader` of
 * `@cogni/sandbox-proxy`. Without traffic, its usage is unknown, and its fact has no tokens.
 */
export const factsOf = UsageFact.fromTraffic

/** A record names no graph, so it is not that of a graph run. */
class NotAGraphRun extends Data.TaggedError("NotAGraphRun")<{ readonly runId: RunId }> {
  override get message(): string {
    return `the record of ${this.runId} names no graph and caller`
  }
}

/** Returns the end of a run whose process died, as its observer would have heard it. */
const endOf = (record: RunRecord): ObservedEnd | undefined => {
  const { endedAt, llm: traffic, runId, spec, startedAt } = record
  if (spec.llm?.observed === undefined) return undefined
  const { identity, model, observed } = spec.llm
  const { attempt, billingAccountId, graphId } = identity
  if (!isGraphId(graphId)) return undefined
  const { grantId, ingressRequestId, requestId, threadId, virtualKeyId } = observed
  const owner = { runId, attempt, graphId, billingAccountId, virtualKeyId }
  const usage = traffic?.usage
  const end = Date.parse(endedAt ?? traffic?.calls.at(-1)?.at ?? startedAt)
  return {
    request: { graphId, model },
    context: { runId, attempt, ingressRequestId, grantId, ...(threadId === undefined ? {} : { threadId }) },
    final: {
      ok: false,
      runId,
      requestId,
      ...(usage === undefined
        ? {}
        : { usage: { promptTokens: usage.inputTokens, completionTokens: usage.outputTokens } }),
      error: "internal",
      reason: "HostDied",
      message: "the host process died before the end of the run was reported; its record and audit are kept"
    },
    facts: factsOf(owner, traffic),
    durationMs: Math.max(0, end - Date.parse(startedAt)),
    isRecovered: true
  }
}

const isGraphId = Schema.is(GraphId)

const recoverWith = (store: RunStore["Service"], observe: NonNullable<GraphObserver["Service"]["observe"]>) =>
  store.recover((record) => {
    const end = endOf(record)
    return end === undefined
      ? Effect.fail(new NotAGraphRun({ runId: record.runId }))
      : Effect.timeout(
          Effect.suspend(() => observe(end)),
          patience
        )
  })

/**
 * Tells the observer about all runs of dead processes on this host, and returns their IDs. A run whose usage the
 * observer does not accept stays for the next recovery. Without an observer, does nothing.
 */
export const recover: Effect.Effect<
  ReadonlyArray<RunId>,
  RunStoreError,
  GraphObserver | RunStore
> = Effect.gen(function* () {
  const store = yield* RunStore
  const { observe } = yield* GraphObserver
  return observe === undefined ? [] : yield* recoverWith(store, observe)
})
