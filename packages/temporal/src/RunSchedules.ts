/**
 * Schedules of durable runs, as schedules of Temporal: added, listed, paused, resumed and removed.
 *
 * The grant of a run is checked at each firing. If it was revoked or has expired, that run is `refused`.
 */
import { Context, Effect, Layer, type Scope } from "effect"
import { loaded } from "./internal/Sdk.ts"
import type { RunSchedule, RunScheduleState } from "./RunSchedule.ts"
import type { RunsOptions, TemporalFailed } from "./TemporalServer.ts"

export class RunSchedules extends Context.Service<
  RunSchedules,
  {
    /** Adds a schedule. Fails if its name is in use. */
    readonly add: (schedule: RunSchedule) => Effect.Effect<void, TemporalFailed>
    /** Lists the schedules of durable runs in the namespace. A new one may appear after some seconds. */
    readonly list: Effect.Effect<ReadonlyArray<RunScheduleState>, TemporalFailed>
    /** Returns a schedule and its state. */
    readonly show: (
      name: string
    ) => Effect.Effect<RunScheduleState & { readonly schedule: RunSchedule }, TemporalFailed>
    /** Lets no more runs start until the schedule is resumed. Runs under way go on. */
    readonly pause: (name: string, note?: string) => Effect.Effect<void, TemporalFailed>
    readonly resume: (name: string) => Effect.Effect<void, TemporalFailed>
    /** Removes a schedule. Runs under way go on. */
    readonly remove: (name: string) => Effect.Effect<void, TemporalFailed>
  }
>()("@cogni/sandbox-temporal/RunSchedules") {}

/** Connects to a server until the end of the scope. */
export const make = Effect.fnUntraced(function* (
  options: RunsOptions
): Effect.fn.Return<RunSchedules["Service"], TemporalFailed, Scope.Scope> {
  const TemporalSchedules = yield* loaded(() => import("./internal/TemporalSchedules.ts"))
  return RunSchedules.of(yield* TemporalSchedules.make(options))
})

/** The same, as a layer. */
export const layer = (options: RunsOptions): Layer.Layer<RunSchedules, TemporalFailed> =>
  Layer.effect(RunSchedules, make(options))
