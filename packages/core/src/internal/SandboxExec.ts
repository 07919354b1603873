/**
 * One command in a sandbox that is open: its output, bounded as a run's, and its time, which is what the sandbox has
 * left.
 */
import { Clock, Duration, Effect, Stream } from "effect"
import type { Container, ContainerError } from "../ContainerRuntime.ts"
import type { Output } from "../RunResult.ts"
import { OutputLimitExceeded, type Partial, TimedOut } from "../SandboxError.ts"
import type { Command, Limits } from "../SandboxSpec.ts"
import * as OutputCollector from "./OutputCollector.ts"

export const run = Effect.fnUntraced(function* (
  container: Container,
  command: Command,
  limits: Limits,
  deadlineMs: number
): Effect.fn.Return<
  { readonly exitCode: number; readonly output: Output },
  ContainerError | OutputLimitExceeded | TimedOut
> {
  const { outputBytesMax, outputRetainedBytesMax, runtimeSecondsMax } = limits
  const collector = OutputCollector.make(outputRetainedBytesMax)
  const partial = (): Partial => ({ output: collector.output(), peak: {} })
  const leftMs = Math.max(0, deadlineMs - (yield* Clock.currentTimeMillis))
  return yield* Effect.gen(function* () {
    const running = yield* container.exec(command)
    yield* Stream.runForEach(running.output, (chunk) =>
      collector.add(chunk) > outputBytesMax
        ? Effect.fail(new OutputLimitExceeded({ outputBytesMax, partial: partial() }))
        : Effect.void
    )
    return { exitCode: yield* running.exitCode, output: collector.output() }
  }).pipe(
    Effect.scoped,
    Effect.timeoutOrElse({
      duration: Duration.millis(leftMs),
      orElse: () => Effect.fail(new TimedOut({ runtimeSecondsMax, partial: partial() }))
    })
  )
})
