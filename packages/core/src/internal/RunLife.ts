/** State of a run: its ID, its clock, its phases and its final record. */
import { Cause, Clock, Duration, Effect, Exit, type LogLevel, Option, Ref } from "effect"
import type { LlmEndpoint } from "../LlmProxy.ts"
import type { PoolUse } from "../PoolUse.ts"
import type { Posture } from "../Posture.ts"
import type { RunEvent } from "../RunEvent.ts"
import type { RunId } from "../RunId.ts"
import type { RunJournals } from "../RunJournal.ts"
import type { RunResult } from "../RunResult.ts"
import type { LlmTraffic, Phase, Timing } from "../RunFigures.ts"
import type { OpenRun } from "../RunStore.ts"
import type { Outcome } from "../RunRecord.ts"
import { named } from "../Remedy.ts"
import { type Reason, SandboxError } from "../SandboxError.ts"
import { HostFailed, ProxyFailed, RuntimeUnavailable } from "../SandboxReason.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import * as Telemetry from "../Telemetry.ts"
import { target } from "../SandboxPlace.ts"
import * as CallSpans from "./CallSpans.ts"
import * as EgressWatch from "./EgressWatch.ts"
import * as FailureSpan from "./FailureSpan.ts"
import * as JournalFeed from "./JournalFeed.ts"
import * as Release from "./Release.ts"
import * as RunLog from "./RunLog.ts"
import * as RunMetrics from "./RunMetrics.ts"

/** How long any step before the agent's first instruction, or after its last, may take. */
export const stepSecondsMax = 120

/** Error of a step that timed out: a fault of the component that ran it. */
type TooSlow = RuntimeUnavailable | ProxyFailed | HostFailed

const tooSlow = (phase: Phase, secondsMax: number): TooSlow => {
  const detail = `did not finish "${phase}" within ${secondsMax} s`
  const remedy = `Check its load and its log, then try again (${named("DockerDoctor")})`
  switch (phase) {
    case "workspace":
      return new HostFailed({
        path: target,
        problem: "too_slow",
        detail: `was not ready within ${secondsMax} s`,
        remedy: "Check the disk that it is on, then try again"
      })
    case "socket":
    case "proxy":
    case "collect":
      return new ProxyFailed({ detail: `the proxy ${detail}`, remedy })
    default:
      return new RuntimeUnavailable({ detail, remedy })
  }
}

/** Bounds a step that is not a phase. */
export const within =
  <E2>(orElse: (secondsMax: number) => E2, secondsMax = stepSecondsMax) =>
  <A, E, R>(step: Effect.Effect<A, E, R>): Effect.Effect<A, E | E2, R> =>
    Effect.timeoutOrElse(step, {
      duration: Duration.seconds(secondsMax),
      orElse: () => Effect.fail(orElse(secondsMax))
    })

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
    ...("partial" in reason && reason.partial !== undefined
      ? { output: reason.partial.output, peak: reason.partial.peak }
      : {})
  }
}

/** Facts about a run so far, for its record. */
interface Known {
  /** Whether the run counts as started. */
  readonly isBegun?: true
  /** Absent until the record is open. */
  readonly open?: OpenRun
  readonly posture?: Posture
  readonly llm?: LlmTraffic
  readonly pool?: PoolUse
  readonly timings: ReadonlyArray<Timing>
}

export type RunLife = Effect.Success<ReturnType<typeof make>>

export const make = Effect.fnUntraced(function* (
  runId: RunId,
  spec: SandboxSpec,
  { journal, logLevel }: { readonly journal: RunJournals; readonly logLevel: LogLevel.Severity },
  listener: (event: RunEvent) => Effect.Effect<void>
) {
  const startedMs = yield* Clock.currentTimeMillis
  const planted = yield* EgressWatch.plant(spec)
  const feed = JournalFeed.make(journal, runId, spec.limits.outputRetainedBytesMax, planted.canaries)
  const log = RunLog.make(logLevel, runId, spec)
  const emit = (event: RunEvent) => Effect.andThen(feed.hear(event), listener(event))
  const egress = yield* EgressWatch.make(spec, planted, emit)
  const known = yield* Ref.make<Known>({ timings: [] })
  const learn = (more: Partial<Known>) => Ref.update(known, (before) => ({ ...before, ...more }))

  /** Times a step, bounds it, and emits an event when it has ended. */
  const phase =
    (phase: Phase, secondsMax = stepSecondsMax) =>
    <A, E, R>(step: Effect.Effect<A, E, R>): Effect.Effect<A, E | TooSlow, R> =>
      Effect.gen(function* () {
        const before = yield* Clock.currentTimeNanos
        const value = yield* step.pipe(within((seconds) => tooSlow(phase, seconds), secondsMax))
        const durationMs = Number((yield* Clock.currentTimeNanos) - before) / 1e6
        yield* Ref.update(known, (so) => ({ ...so, timings: [...so.timings, { phase, durationMs }] }))
        yield* RunMetrics.phaseEnded(phase, durationMs)
        // A reader that has stopped reading must not keep the container: it misses this event.
        yield* Effect.timeoutOption(
          emit({ _tag: "PhaseEnded", phase, durationMs }),
          Duration.seconds(stepSecondsMax)
        )
        return value
      }).pipe(
        Effect.withSpan(`SandboxRunner.${phase}`, { attributes: { [Telemetry.attribute.phase]: phase } })
      )

  const collected = (endpoint: LlmEndpoint) => Effect.flatMap(endpoint.finish, (llm) => learn({ llm }))

  /** Collects the model calls when the agent did not end by itself. Never fails. */
  const lastLook = (endpoint: LlmEndpoint) =>
    Release.bounded("reading the run's model calls", collected(endpoint))

  /** Writes the final record, if the run has been opened. It never fails, and its time is bounded. */
  const record = Effect.fnUntraced(function* (exit: Exit.Exit<RunResult | undefined, Reason>) {
    const { isBegun, open, ...so } = yield* Ref.get(known)
    const endedMs = yield* Clock.currentTimeMillis
    const errorType = FailureSpan.errorTypeOf(exit)
    if (errorType !== undefined) yield* Effect.annotateCurrentSpan(Telemetry.attribute.errorType, errorType)
    if (so.pool !== undefined) yield* Effect.annotateCurrentSpan(Telemetry.attribute.pool, so.pool)
    const span = yield* Effect.option(Effect.currentSpan)
    const spans =
      so.llm !== undefined && Option.isSome(span)
        ? yield* CallSpans.make(span.value, spec.llm?.model ?? "", so.llm)
        : new Map<never, never>()
    if (isBegun === true) yield* RunMetrics.ends(spec, exit, (endedMs - startedMs) / 1000, so.llm, spans)
    if (open === undefined) return
    const outcome = outcomeOf(exit)
    yield* Release.bounded(
      "writing the run record",
      open.save({
        runId,
        spec,
        owner: open.owner,
        startedAt: new Date(startedMs).toISOString(),
        endedAt: new Date(endedMs).toISOString(),
        outcome,
        suspicions: egress.suspicions(),
        ...so
      })
    )
    // After the record, so that a reader who hears the end finds the outcome.
    yield* Release.bounded("ending the run's journal", feed.ended(outcome))
    yield* log.ended(outcome, endedMs - startedMs, so.llm)
  })

  return {
    runId,
    emit,
    egress,
    phase,
    /** Counts the run as started. `record` counts its end. */
    begun: Effect.uninterruptible(Effect.andThen(learn({ isBegun: true }), RunMetrics.begun(spec))),
    /** Notes that the run is open, so that its final record is written. */
    opened: (open: OpenRun) => learn({ open }).pipe(Effect.andThen(feed.opened), Effect.andThen(log.started)),
    /** Notes that the sandbox isolation check passed. */
    verified: (posture: Posture) =>
      learn({ posture }).pipe(
        Effect.andThen(emit({ _tag: "PostureVerified", posture })),
        Effect.andThen(log.ready)
      ),
    /** Notes how the run got its sandbox. */
    pooled: (pool: PoolUse) => learn({ pool }),
    /** Reads the proxy's traffic after the agent has ended. */
    collect: (endpoint: LlmEndpoint) =>
      collected(endpoint).pipe(
        phase("collect"),
        Effect.onInterrupt(() => lastLook(endpoint))
      ),
    lastLook,
    record,
    /** The part of a result that does not come from the agent. */
    account: Effect.gen(function* () {
      const { isBegun: _, open: __, pool: ___, posture: ____, ...so } = yield* Ref.get(known)
      const durationMs = (yield* Clock.currentTimeMillis) - startedMs
      return { runId, suspicions: egress.suspicions(), durationMs, ...so }
    }),
    error: (reason: Reason) =>
      Effect.flatMap(Ref.get(known), ({ llm }) =>
        Effect.fail(new SandboxError({ runId, reason, ...(llm === undefined ? {} : { llm }) }))
      )
  }
})
