/** Runs one command in an open sandbox. Its output is scanned for canaries, and a broken limit ends it. */
import { Duration, Effect, Option, Stream } from "effect"
import * as CommandInput from "../CommandInput.ts"
import type { Container } from "../ContainerRuntime.ts"
import type { RunningCommand } from "../Executor.ts"
import type { Command } from "../ExecutorCommand.ts"
import { emptyOutput, type OutputChunk } from "../RunResult.ts"
import { type Reason, type SandboxError } from "../SandboxError.ts"
import { OomKilled, PidsExhausted, type Partial } from "../SandboxReason.ts"
import type { Limits } from "../SpecFields.ts"
import type { Broken } from "./SandboxGuard.ts"

/** Empty: the reader of a command has its output. */
const nothing: Partial = { output: emptyOutput, peak: {} }

interface CommandContext {
  readonly error: (reason: Reason) => SandboxError
  readonly broken: Effect.Effect<Broken>
  readonly inspect: (chunk: OutputChunk) => Effect.Effect<void>
  /** The violation so far. Known before `broken` settles, if this command caused it. */
  readonly violated: () => Broken | undefined
}

/** How long to wait for the reason why a sandbox ended, after a command was cut off. */
const reasonSecondsMax = 5

/** Replaces an engine's error by the reason why the sandbox ended, which is more precise but known a moment later. */
const finer = (context: CommandContext, error: Reason): Effect.Effect<never, Reason> =>
  error._tag === "ContainerFailed" || error._tag === "RuntimeUnavailable"
    ? context.broken.pipe(
        Effect.timeoutOption(Duration.seconds(reasonSecondsMax)),
        Effect.flatMap((why) => Effect.fail(Option.isSome(why) ? why.value(nothing) : error))
      )
    : Effect.fail(error)

/** Fails an operation as soon as the sandbox has ended, with the reason. */
export const unlessBroken =
  (context: CommandContext) =>
  <A, E extends Reason, R>(asked: Effect.Effect<A, E, R>): Effect.Effect<A, SandboxError, R> =>
    // In this order, so that no operation on an ended sandbox succeeds, however fast it is.
    Effect.raceFirst(
      Effect.flatMap(context.broken, (why) => Effect.fail(why(nothing))),
      asked.pipe(Effect.catch((error) => finer(context, error)))
    ).pipe(Effect.mapError(context.error))

export const spawn = Effect.fnUntraced(function* (
  container: Container,
  command: Command,
  limits: Limits,
  context: CommandContext
) {
  const { broken, error, inspect, violated } = context
  const input = yield* CommandInput.make(command.stdin)
  const running = yield* unlessBroken(context)(container.exec({ ...command, stdin: input.stdin }))
  const exit = yield* input.feed(running)
  return {
    output: running.output.pipe(
      Stream.tap(inspect),
      Stream.interruptWhen(Effect.flatMap(broken, (why) => Effect.fail(why(nothing)))),
      Stream.catch((reason) => Stream.fromEffect(finer(context, reason))),
      Stream.mapError(error)
    ),
    exit: unlessBroken(context)(
      Effect.flatMap(exit, ({ exitCode, oomKilled, processesRefused, signal }) => {
        const violation = violated()
        if (violation !== undefined) return Effect.fail(violation(nothing))
        const partial = { ...nothing, exitCode }
        const { memoryBytesMax, processesMax } = limits
        if (oomKilled) return Effect.fail(new OomKilled({ memoryBytesMax, partial }))
        if (processesRefused) return Effect.fail(new PidsExhausted({ processesMax, partial }))
        return Effect.succeed({ exitCode, ...(signal === undefined ? {} : { signal }) })
      })
    ),
    signal: (name) => unlessBroken(context)(running.signal(name))
  } satisfies RunningCommand
})
