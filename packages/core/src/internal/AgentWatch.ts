/** From the agent's first instruction to its end: its output, its limits, and how it was ended where it broke one. */
import { Deferred, Duration, Effect, Fiber, Option, Stream } from "effect"
import type { Container, ContainerError, ContainerExit } from "../ContainerRuntime.ts"
import type { LlmProxyError } from "../LlmProxy.ts"
import type { OutputChunk } from "../RunResult.ts"
import {
  DiskFull,
  type LimitReason,
  OomKilled,
  OutputLimitExceeded,
  type Partial,
  PidsExhausted,
  ProxyFailed,
  TimedOut,
  type WorkspaceFailed
} from "../SandboxError.ts"
import type { Limits } from "../SandboxSpec.ts"
import type { AcquiredWorkspace } from "../Workspace.ts"
import type { RunEvent } from "../RunEvent.ts"
import * as OutputCollector from "./OutputCollector.ts"

/** How long the host waits for the last output and the exit of an agent that it stopped. */
const settleSecondsMax = 10

/** The longest a watch can take by itself: what is over that is a fault of the engine. */
export const secondsMax = (limits: Limits): number =>
  limits.runtimeSecondsMax + limits.stopGraceSecondsMax + 3 * settleSecondsMax

/** How often the workspace is measured. */
const diskIntervalSeconds = 1

/** How many times longer than a measure the pause after it is at least: files are cheap for an agent to make. */
const diskPauseFactor = 20

/** A limit that the host holds, not the kernel: what it makes of all that was said until the agent had stopped. */
export type HostLimit = (partial: Partial) => LimitReason

/** What ended the watch: the agent itself, by its exit, or the first limit it broke that the kernel does not hold. */
type Ending = ContainerExit | HostLimit

/** Kernel facts outrank the host's clock and counters: what the kernel refused came first. */
export const kernelLimit = (
  exit: ContainerExit | undefined,
  limits: Limits,
  partial: Partial
): LimitReason | undefined => {
  if (exit?.oomKilled === true) return new OomKilled({ memoryBytesMax: limits.memoryBytesMax, partial })
  if (exit?.processesRefused === true)
    return new PidsExhausted({ processesMax: limits.processesMax, partial })
  return undefined
}

const diskFull =
  ({ workspaceBytesMax }: Limits): HostLimit =>
  (partial) =>
    new DiskFull({ workspaceBytesMax, partial })

/** What counts of a workspace; where that is not certain, counted once more while nothing runs that could move it. */
export const counted = (
  container: Pick<Container, "whilePaused">,
  { countedBytes, countedBytesAtRest }: Pick<AcquiredWorkspace, "countedBytes" | "countedBytesAtRest">
): Effect.Effect<number, WorkspaceFailed | ContainerError> =>
  Effect.flatMap(countedBytes, ({ bytes, isCertain }) =>
    isCertain ? Effect.succeed(bytes) : container.whilePaused(countedBytesAtRest)
  )

/** Settles when the workspace is over its limit. Measuring takes a small share of the time, however large it is. */
const overfull = <E>(measured: Effect.Effect<number, E>, limits: Limits): Effect.Effect<void, E> =>
  Effect.gen(function* () {
    for (;;) {
      const [took, bytes] = yield* Effect.timed(measured)
      if (bytes > limits.workspaceBytesMax) return
      yield* Effect.sleep(
        Duration.max(Duration.seconds(diskIntervalSeconds), Duration.times(took, diskPauseFactor))
      )
    }
  })

/** Settles with the first limit on time, workspace or egress that is broken. */
export const firstBroken = <E>(
  limits: Limits,
  measured: Effect.Effect<number, E>,
  violation: Effect.Effect<HostLimit>
): Effect.Effect<HostLimit, E> => {
  const { runtimeSecondsMax } = limits
  return Effect.raceAllFirst([
    Effect.as(
      Effect.sleep(Duration.seconds(runtimeSecondsMax)),
      (partial: Partial) => new TimedOut({ runtimeSecondsMax, partial })
    ),
    Effect.as(overfull(measured, limits), diskFull(limits)),
    violation
  ])
}

export const watch = Effect.fnUntraced(function* (
  container: Container,
  limits: Limits,
  watched: {
    readonly emit: (event: RunEvent) => Effect.Effect<void>
    readonly countedBytes: Effect.Effect<number, WorkspaceFailed | ContainerError>
    readonly failure: Effect.Effect<never, LlmProxyError>
    /** Settles when what left the sandbox must end the run. */
    readonly violation: Effect.Effect<HostLimit>
    /** Looks for canaries in what the agent writes. */
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
      // A flood is counted, looked at and dropped, so that what is being stopped can still end.
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
    firstBroken(limits, measured, watched.violation),
    Effect.as(Deferred.await(flooded), flooding),
    Effect.mapError(watched.failure, (error) => withPartial(error, soFar()))
  ])

  if (typeof ending === "function") {
    // What cannot be stopped is killed when it is released; the broken limit is what the caller must hear of.
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
    kernelLimit(ending, limits, soFar(ending)) ??
    (bytes > limits.workspaceBytesMax ? diskFull(limits)(soFar(ending)) : undefined)
  if (broken !== undefined) return yield* Effect.fail(broken)
  const { output, peak } = soFar(ending)
  return { exitCode: ending.exitCode, output, peak }
})

/** A proxy that fails must not take along what the agent had already said. */
export const withPartial = <E extends { readonly _tag: string }>(
  error: E | ProxyFailed,
  partial: Partial
): E | ProxyFailed =>
  error instanceof ProxyFailed
    ? new ProxyFailed({ detail: error.detail, remedy: error.remedy, partial })
    : error
