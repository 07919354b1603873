/**
 * From the agent's first instruction to its end: its output, its limits, and how it was ended where it broke one.
 */
import { Deferred, Duration, Effect, Fiber, Option, Schedule, Stream } from "effect"
import type { Container, ContainerError, ContainerExit } from "../ContainerRuntime.ts"
import type { LlmProxyError } from "../LlmProxy.ts"
import type { Output, Peak } from "../RunResult.ts"
import {
  DiskFull,
  type LimitReason,
  OomKilled,
  OutputLimitExceeded,
  type Partial,
  PidsExhausted,
  TimedOut,
  type WorkspaceFailed
} from "../SandboxError.ts"
import type { Limits } from "../SandboxSpec.ts"
import type { RunEvent } from "../RunEvent.ts"
import * as OutputCollector from "./OutputCollector.ts"

/** How long the host waits for the last output and the exit of an agent that it stopped. */
const settleSecondsMax = 10

/** The longest a watch can take by itself: what is over that is a fault of the engine. */
export const secondsMax = (limits: Limits): number =>
  limits.runtimeSecondsMax + limits.stopGraceSecondsMax + 3 * settleSecondsMax

/** How often the workspace is measured. A walk that takes longer makes the pause longer. */
const diskIntervalSeconds = 1

/** What ended the watch: the agent itself, by its exit, or the first limit it broke that the kernel does not hold. */
type Ending = ContainerExit | "time" | "output" | "disk"

/** @internal */
export interface Watched {
  readonly exitCode: number
  readonly output: Output
  readonly peak: Peak
}

/** Kernel facts outrank the host's clock and counters: what the kernel refused came first. */
const brokenLimit = (
  ending: Ending,
  exit: ContainerExit | undefined,
  limits: Limits,
  partial: Partial
): LimitReason | undefined => {
  if (exit?.oomKilled === true) return new OomKilled({ memoryBytesMax: limits.memoryBytesMax, partial })
  if (exit?.processesRefused === true) return new PidsExhausted({ processesMax: limits.processesMax, partial })
  switch (ending) {
    case "time":
      return new TimedOut({ runtimeSecondsMax: limits.runtimeSecondsMax, partial })
    case "output":
      return new OutputLimitExceeded({ outputBytesMax: limits.outputBytesMax, partial })
    case "disk":
      return new DiskFull({ workspaceBytesMax: limits.workspaceBytesMax, partial })
    default:
      return undefined
  }
}

export const watch = Effect.fnUntraced(function* (
  container: Container,
  limits: Limits,
  around: {
    readonly emit: (event: RunEvent) => Effect.Effect<void>
    readonly addedBytes: Effect.Effect<number, WorkspaceFailed>
    readonly failure: Effect.Effect<never, LlmProxyError>
  }
): Effect.fn.Return<Watched, LimitReason | ContainerError | LlmProxyError | WorkspaceFailed> {
  const collector = OutputCollector.make(limits.outputRetainedBytesMax)
  const flooded = yield* Deferred.make<void>()
  let workspaceBytes = 0

  const reader = yield* Effect.forkChild(
    Stream.runForEach(container.output, (chunk) => {
      // A flood is counted and dropped, so that what is being stopped can still end.
      const bytes = collector.add(chunk)
      return bytes > limits.outputBytesMax
        ? Deferred.succeed(flooded, undefined)
        : around.emit({ _tag: "OutputReceived", ...chunk })
    })
  )
  const exit = Effect.andThen(Fiber.join(reader), container.exit)

  const disk = around.addedBytes.pipe(
    Effect.tap((bytes) =>
      Effect.sync(() => {
        workspaceBytes = Math.max(workspaceBytes, bytes)
      })
    ),
    Effect.repeat({
      schedule: Schedule.spaced(Duration.seconds(diskIntervalSeconds)),
      until: (bytes) => bytes > limits.workspaceBytesMax
    })
  )

  const ending: Ending = yield* Effect.raceAllFirst([
    exit,
    Effect.as(Effect.sleep(Duration.seconds(limits.runtimeSecondsMax)), "time" as const),
    Effect.as(Deferred.await(flooded), "output" as const),
    Effect.as(disk, "disk" as const),
    around.failure
  ])

  const stopped = Effect.andThen(
    container.stop(Duration.seconds(limits.stopGraceSecondsMax)),
    Effect.timeoutOption(exit, Duration.seconds(settleSecondsMax))
  )
  const ended = typeof ending === "string" ? Option.getOrUndefined(yield* stopped) : ending
  const output = collector.output()
  const peak: Peak = { ...ended?.peak, workspaceBytes }
  const partial: Partial = { ...(ended === undefined ? {} : { exitCode: ended.exitCode }), output, peak }
  const broken = brokenLimit(ending, ended, limits, partial)
  if (broken !== undefined) return yield* Effect.fail(broken)
  // Without a broken limit the agent has ended by itself, so there is an exit.
  return { exitCode: ended!.exitCode, output, peak }
})
