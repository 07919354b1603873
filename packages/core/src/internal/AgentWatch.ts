/** Watches an agent from its first instruction to its end, and stops it if it breaks a limit. */
import { Clock, Deferred, Duration, Effect, Fiber, Option, Stream } from "effect"
import type { Container, ContainerError, ContainerExit } from "../ContainerRuntime.ts"
import type { LlmProxyError } from "../LlmProxy.ts"
import type { OutputChunk } from "../RunResult.ts"
import {
  DiskFull,
  type HostFailed,
  type LimitReason,
  OomKilled,
  OutputLimitExceeded,
  type Partial,
  PidsExhausted,
  ProxyFailed,
  TimedOut,
  type WorkspaceFailed
} from "../SandboxReason.ts"
import type { Limits } from "../SpecFields.ts"
import type { AcquiredWorkspace } from "../Workspace.ts"
import type { RunEvent } from "../RunEvent.ts"
import * as OutputCollector from "./OutputCollector.ts"

/** How long the host waits for the last output and the exit of an agent that it stopped. */
const settleSecondsMax = 10

/** Longest duration of a watch. If it takes longer, the engine is at fault. */
export const secondsMax = (limits: Limits): number =>
  limits.runtimeSecondsMax + limits.stopGraceSecondsMax + 3 * settleSecondsMax

/** Shortest pause between two measurements of the workspace. */
const diskIntervalSeconds = 1

/**
 * Longest time without a measurement of a workspace whose disk has not changed. That alone proves nothing, because
 * others could remove as much as the agent writes. It may be longer only while no process of the sandbox runs.
 */
const unchangedSecondsMax = 10

/** Number of such times without processor time after which nothing that was written is still to come. */
const idleTimesMin = 2

/** Shortest pause after a measurement, as a multiple of its duration: creating files is cheap for an agent. */
const diskPauseFactor = 20

/** A limit that the host enforces, not the kernel: makes the error from the partial result of the stopped agent. */
export type HostLimit = (partial: Partial) => LimitReason

/** How the watch ended: by the agent's exit, or by the first broken limit that the host enforces. */
type Ending = ContainerExit | HostLimit

/** Returns the broken limit that the kernel enforced. It precedes those of the host, because it was broken first. */
const kernelLimit = (
  exit: ContainerExit | undefined,
  limits: Limits,
  partial: Partial
): LimitReason | undefined => {
  if (exit?.oomKilled === true) return new OomKilled({ memoryBytesMax: limits.memoryBytesMax, partial })
  if (exit?.processesRefused === true)
    return new PidsExhausted({ processesMax: limits.processesMax, partial })
  return undefined
}

/** Returns the limit that ended a container by itself: one of the kernel, or its own deadline. */
export const exitLimit = (exit: ContainerExit, limits: Limits, partial: Partial): LimitReason | undefined => {
  const { runtimeSecondsMax } = limits
  return (
    kernelLimit(exit, limits, partial) ??
    (exit.deadlinePassed === true ? new TimedOut({ runtimeSecondsMax, partial }) : undefined)
  )
}

const diskFull =
  ({ workspaceBytesMax }: Limits): HostLimit =>
  (partial) =>
    new DiskFull({ workspaceBytesMax, partial })

/** Counts the bytes of a workspace. If the result is not certain, counts again while the container is paused. */
export const counted = (
  container: Pick<Container, "whilePaused">,
  { countedBytes, countedBytesAtRest }: Pick<AcquiredWorkspace, "countedBytes" | "countedBytesAtRest">
): Effect.Effect<number, WorkspaceFailed | HostFailed | ContainerError> =>
  Effect.flatMap(countedBytes, ({ bytes, isCertain }) =>
    isCertain ? Effect.succeed(bytes) : container.whilePaused(countedBytesAtRest)
  )

/** The workspace of a run, as its watch sees it. */
export interface WatchedWorkspace<E>
  extends Pick<AcquiredWorkspace, "changed">, Pick<Container, "processorMicros"> {
  readonly countedBytes: Effect.Effect<number, E>
}

/** The workspace that a container works in. */
export const watchedOf = (
  container: Pick<Container, "processorMicros" | "whilePaused">,
  workspace: Pick<AcquiredWorkspace, "changed" | "countedBytes" | "countedBytesAtRest">
): WatchedWorkspace<WorkspaceFailed | HostFailed | ContainerError> => ({
  countedBytes: counted(container, workspace),
  changed: workspace.changed,
  processorMicros: container.processorMicros
})

/**
 * Settles when a workspace must be counted even if its disk seems unchanged: every ten seconds, unless no process of
 * the sandbox has used the processor for so long that another count would have the same result.
 */
const makeOverdue = (processorMicros: Effect.Effect<number | undefined>) => {
  let lastMicros: number | undefined
  let idleTimes = 0
  return Effect.fnUntraced(function* (waitedSeconds: number) {
    yield* Effect.sleep(Duration.seconds(Math.max(0, unchangedSecondsMax - waitedSeconds)))
    for (;;) {
      const micros = yield* processorMicros
      idleTimes = micros !== undefined && micros === lastMicros ? idleTimes + 1 : 0
      lastMicros = micros
      if (idleTimes < idleTimesMin) return
      // All idle runs at the same moments, so that this process wakes up once for all of them.
      const periodMillis = unchangedSecondsMax * 1000
      yield* Effect.sleep(Duration.millis(periodMillis - ((yield* Clock.currentTimeMillis) % periodMillis)))
    }
  })
}

/** Settles when the workspace is over its limit. Measuring takes a small share of the time, whatever its size. */
const overfull = <E>(
  { changed = Effect.void, countedBytes, processorMicros = Effect.undefined }: WatchedWorkspace<E>,
  limits: Limits
): Effect.Effect<void, E> =>
  Effect.gen(function* () {
    const overdue = makeOverdue(processorMicros)
    let pauseSeconds = 0
    for (;;) {
      yield* Effect.raceFirst(changed, overdue(pauseSeconds))
      const [took, bytes] = yield* Effect.timed(countedBytes)
      if (bytes > limits.workspaceBytesMax) return
      pauseSeconds = Math.max(diskIntervalSeconds, Duration.toSeconds(took) * diskPauseFactor)
      yield* Effect.sleep(Duration.seconds(pauseSeconds))
    }
  })

/** Settles with the first broken limit on time, workspace or egress. */
export const firstBroken = <E>(
  limits: Limits,
  workspace: WatchedWorkspace<E>,
  violation: Effect.Effect<HostLimit>
): Effect.Effect<HostLimit, E> => {
  const { runtimeSecondsMax } = limits
  return Effect.raceAllFirst([
    Effect.as(
      Effect.sleep(Duration.seconds(runtimeSecondsMax)),
      (partial: Partial) => new TimedOut({ runtimeSecondsMax, partial })
    ),
    Effect.as(overfull(workspace, limits), diskFull(limits)),
    violation
  ])
}

export const watch = Effect.fnUntraced(function* (
  container: Container,
  limits: Limits,
  watched: WatchedWorkspace<WorkspaceFailed | HostFailed | ContainerError> & {
    readonly emit: (event: RunEvent) => Effect.Effect<void>
    readonly failure: Effect.Effect<never, LlmProxyError>
    /** Settles when something that left the sandbox must end the run. */
    readonly violation: Effect.Effect<HostLimit>
    /** Scans the agent's output for canaries. */
    readonly inspect: (chunk: OutputChunk) => Effect.Effect<void>
  }
) {
  const collector = OutputCollector.make(limits.outputRetainedBytesMax)
  const flooded = yield* Deferred.make<void>()
  const { outputBytesMax } = limits
  const flooding = (partial: Partial) => new OutputLimitExceeded({ outputBytesMax, partial })
  let workspaceBytes = 0

  const reader = yield* Effect.forkChild(
    Stream.runForEach(container.output, (chunk) => {
      // Excess output is counted, scanned and dropped, so that an agent that is being stopped can still end.
      const bytes = collector.add(chunk)
      return Effect.andThen(
        watched.inspect(chunk),
        bytes > outputBytesMax
          ? Deferred.succeed(flooded, undefined)
          : watched.emit({ _tag: "OutputReceived", ...chunk })
      )
    })
  )
  const exit = Effect.andThen(Fiber.join(reader), container.exit)

  const measured = Effect.tap(watched.countedBytes, (bytes) =>
    Effect.sync(() => {
      workspaceBytes = Math.max(workspaceBytes, bytes)
    })
  )
  const soFar = (exit?: ContainerExit): Partial => ({
    ...(exit === undefined ? {} : { exitCode: exit.exitCode }),
    output: collector.output(),
    peak: { ...exit?.peak, workspaceBytes }
  })

  const ending: Ending = yield* Effect.raceAllFirst([
    exit,
    firstBroken(limits, { ...watched, countedBytes: measured }, watched.violation),
    Effect.as(Deferred.await(flooded), flooding),
    Effect.mapError(watched.failure, (error) => withPartial(error, soFar()))
  ])

  if (typeof ending === "function") {
    // An agent that cannot be stopped is killed on release. The caller must get the broken limit instead.
    const stopped = container.stop(Duration.seconds(limits.stopGraceSecondsMax)).pipe(
      Effect.andThen(exit),
      Effect.timeoutOption(Duration.seconds(limits.stopGraceSecondsMax + settleSecondsMax)),
      Effect.catch((error) =>
        Effect.as(Effect.logWarning("the agent could not be stopped", error), Option.none())
      )
    )
    const exited = Option.getOrUndefined(yield* stopped)
    return yield* Effect.fail(kernelLimit(exited, limits, soFar(exited)) ?? ending(soFar(exited)))
  }
  // A run can be shorter than the interval.
  const bytes = yield* measured
  const broken =
    exitLimit(ending, limits, soFar(ending)) ??
    (bytes > limits.workspaceBytesMax ? diskFull(limits)(soFar(ending)) : undefined)
  if (broken !== undefined) return yield* Effect.fail(broken)
  const { output, peak } = soFar(ending)
  return { exitCode: ending.exitCode, output, peak }
})

/** Adds the agent's partial result to a proxy failure, so that it is not lost. */
export const withPartial = <E extends { readonly _tag: string }>(
  error: E | ProxyFailed,
  partial: Partial
): E | ProxyFailed =>
  error instanceof ProxyFailed
    ? new ProxyFailed({ detail: error.detail, remedy: error.remedy, partial })
    : error
