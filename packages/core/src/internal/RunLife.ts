/**
 * What a run knows of itself while it lives: its id, its clock, its phases, and the record it leaves.
 */
import { Cause, Clock, Duration, Effect, Exit } from "effect"
import type { Posture } from "../Posture.ts"
import type { RunEvent } from "../RunEvent.ts"
import type { RunId } from "../RunId.ts"
import type { Phase, RunResult, Timing } from "../RunResult.ts"
import type { OpenRun, Outcome } from "../RunStore.ts"
import { type Reason, RuntimeUnavailable } from "../SandboxError.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import * as Telemetry from "../Telemetry.ts"

/** How long any step before the agent's first instruction, or after its last, may take. */
export const stepSecondsMax = 120

const outcomeOf = (exit: Exit.Exit<RunResult | undefined, Reason>): Outcome => {
  if (Exit.isSuccess(exit)) {
    return exit.value === undefined ? { status: "closed" } : { status: "exited", result: exit.value }
  }
  const failure = exit.cause.reasons.find(Cause.isFailReason)
  if (failure === undefined) {
    return Cause.hasInterruptsOnly(exit.cause)
      ? { status: "interrupted" }
      : { status: "failed", reason: "Defect", code: "internal", message: Cause.pretty(exit.cause) }
  }
  const reason = failure.error
  return {
    status: "failed",
    reason: reason._tag,
    code: reason.code,
    message: reason.message,
    ...("partial" in reason ? { output: reason.partial.output, peak: reason.partial.peak } : {})
  }
}

export interface RunLife {
  readonly runId: RunId
  readonly emit: (event: RunEvent) => Effect.Effect<void>
  readonly timings: Array<Timing>
  readonly elapsedMs: Effect.Effect<number>
  /** Time a step, bound it, and say when it is over. */
  readonly phase: (
    phase: Phase,
    secondsMax?: number
  ) => <A, E, R>(step: Effect.Effect<A, E, R>) => Effect.Effect<A, E | RuntimeUnavailable, R>
  /** Write the record's last word. Before the run is open there is none to write. */
  readonly record: (exit: Exit.Exit<RunResult | undefined, Reason>) => Effect.Effect<void>
  open: OpenRun | undefined
  posture: Posture | undefined
}

export const make = Effect.fnUntraced(function* (
  runId: RunId,
  spec: SandboxSpec,
  emit: (event: RunEvent) => Effect.Effect<void>
) {
  const startedMs = yield* Clock.currentTimeMillis
  const elapsedMs = Effect.map(Clock.currentTimeMillis, (now) => now - startedMs)
  const life: RunLife = {
    runId,
    emit,
    timings: [],
    elapsedMs,
    open: undefined,
    posture: undefined,
    phase:
      (phase, secondsMax = stepSecondsMax) =>
      (step) =>
        Effect.gen(function* () {
          const before = yield* Clock.currentTimeNanos
          const value = yield* step.pipe(
            Effect.timeoutOrElse({
              duration: Duration.seconds(secondsMax),
              orElse: () =>
                Effect.fail(
                  new RuntimeUnavailable({
                    detail: `did not finish "${phase}" within ${secondsMax} s`,
                    remedy: "Look at its load and its log, then try again (cogni-sandbox doctor)"
                  })
                )
            })
          )
          const durationMs = Number((yield* Clock.currentTimeNanos) - before) / 1e6
          life.timings.push({ phase, durationMs })
          yield* emit({ _tag: "PhaseEnded", phase, durationMs })
          return value
        }).pipe(Effect.withSpan(`SandboxRunner.${phase}`, { attributes: { [Telemetry.attribute.phase]: phase } })),
    record: (exit) =>
      Effect.gen(function* () {
        const { open, posture, timings } = life
        if (open === undefined) return
        yield* open.save({
          runId,
          spec,
          owner: open.owner,
          startedAt: new Date(startedMs).toISOString(),
          endedAt: new Date(yield* Clock.currentTimeMillis).toISOString(),
          outcome: outcomeOf(exit),
          ...(posture === undefined ? {} : { posture }),
          timings: [...timings]
        })
      })
  }
  return life
})
