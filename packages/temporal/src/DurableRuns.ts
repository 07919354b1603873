/**
 * Submits durable runs to Temporal, waits for them and cancels them.
 *
 * Needs no host and no engine: the workers of the namespace do the rest.
 */
import { Context, Effect, Layer, type Scope } from "effect"
import type { DurableOutcome, DurableRun } from "./DurableRun.ts"
import { loaded } from "./internal/Sdk.ts"
import type { RunsOptions, TemporalFailed } from "./TemporalServer.ts"

export class DurableRuns extends Context.Service<
  DurableRuns,
  {
    /** Starts a run, and returns when Temporal has it. Fails if its ID was ever used. */
    readonly submit: (run: DurableRun) => Effect.Effect<void, TemporalFailed>
    /** Waits for the end of a run. Interrupting it does not end the run. */
    readonly wait: (runId: string) => Effect.Effect<DurableOutcome, TemporalFailed>
    /** Asks for the end of a run. */
    readonly cancel: (runId: string) => Effect.Effect<void, TemporalFailed>
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
