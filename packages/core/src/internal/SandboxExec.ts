/**
 * One command in a sandbox that is open: its output bounded as a run's, and ended when the sandbox breaks a limit.
 */
import { Effect, Stream } from "effect"
import type { Container, OutputChunk } from "../ContainerRuntime.ts"
import type { Output } from "../RunResult.ts"
import { OutputLimitExceeded, type Partial, type Reason } from "../SandboxError.ts"
import type { Command, Limits } from "../SandboxSpec.ts"
import * as OutputCollector from "./OutputCollector.ts"
import type { Broken } from "./SandboxGuard.ts"

export const run = (
  container: Container,
  command: Command,
  limits: Limits,
  around: {
    readonly broken: Effect.Effect<Broken>
    readonly inspect: (chunk: OutputChunk) => Effect.Effect<void>
    /** Known before `broken` settles, where it was this command. */
    readonly violated: () => Broken | undefined
  }
): Effect.Effect<{ readonly exitCode: number; readonly output: Output }, Reason> =>
  Effect.suspend(() => {
    const { outputBytesMax, outputRetainedBytesMax } = limits
    const collector = OutputCollector.make(outputRetainedBytesMax)
    const partial = (): Partial => ({ output: collector.output(), peak: {} })
    const executed = Effect.gen(function* () {
      const running = yield* container.exec(command)
      yield* Stream.runForEach(running.output, (chunk) =>
        Effect.andThen(
          around.inspect(chunk),
          collector.add(chunk) > outputBytesMax
            ? Effect.fail(new OutputLimitExceeded({ outputBytesMax, partial: partial() }))
            : Effect.void
        )
      )
      const exitCode = yield* running.exitCode
      const violated = around.violated()
      if (violated !== undefined) return yield* Effect.fail(violated(partial()))
      return { exitCode, output: collector.output() }
    }).pipe(Effect.scoped)
    return Effect.raceFirst(
      executed,
      Effect.flatMap(around.broken, (why) => Effect.fail(why(partial())))
    )
  })
