/**
 * Submits durable runs to Temporal, waits for them and cancels them.
 *
 * Needs no host and no engine: the workers of the namespace do the rest.
 */
import type { SubmittedRun } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Context, Effect, Layer, type Scope } from "effect"
import type { DurableOutcome, DurableRun, RunOwner } from "./DurableRun.ts"
import { loaded } from "./internal/Sdk.ts"
import type { RunsOptions, TemporalFailed } from "./TemporalServer.ts"

export class DurableRuns extends Context.Service<
  DurableRuns,
  {
    /** Starts a run, and returns when Temporal has it. Fails if its ID was ever used. */
    readonly submit: (run: DurableRun, owner?: RunOwner) => Effect.Effect<void, TemporalFailed>
    /** Waits for the end of a run. Interrupting it does not end the run. */
    readonly wait: (runId: string) => Effect.Effect<DurableOutcome, TemporalFailed>
    /** Whether a worker takes runs of the queue now. Temporal notices the end of one after a minute. */
    readonly hasWorkers: Effect.Effect<boolean, TemporalFailed>
    /**
     * Asks for the end of a run. With an account, one of another account is not found, and one whose workflow names no
     * account is not cancelled (`OwnerUnknown`).
     */
    readonly cancel: (runId: string, billingAccountId?: string) => Effect.Effect<void, TemporalFailed>
    /** Returns a run that was submitted with its owner, as long as Temporal retains it. */
    readonly find: (runId: string) => Effect.Effect<SubmittedRun | undefined, TemporalFailed>
    /**
     * Runs of an owner that have not ended, the newest first, at most 500. A new one can be missing for a moment.
     * Without search attributes, none is found.
     */
    readonly underWay: (
      billingAccountId: string
    ) => Effect.Effect<ReadonlyArray<SubmittedRun>, TemporalFailed>
  }
>()("@cogni/sandbox-temporal/DurableRuns") {}

/** Connects to a server until the end of the scope. */
export const make = Effect.fnUntraced(function* (
  options: RunsOptions
): Effect.fn.Return<DurableRuns["Service"], TemporalFailed, Scope.Scope> {
  const TemporalRuns = yield* loaded(() => import("./internal/TemporalRuns.ts"))
  return DurableRuns.of(yield* TemporalRuns.make(options))
})

/** The same, as a layer. */
export const layer = (options: RunsOptions): Layer.Layer<DurableRuns, TemporalFailed> =>
  Layer.effect(DurableRuns, make(options))
