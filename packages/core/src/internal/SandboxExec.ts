/** One command in a sandbox that is open: looked at as a run's output is, and over when the sandbox breaks a limit. */
import { Duration, Effect, Option, Stream } from "effect"
import type { Container } from "../ContainerRuntime.ts"
import type { Command, RunningCommand } from "../Executor.ts"
import { emptyOutput, type OutputChunk } from "../RunResult.ts"
import { OomKilled, PidsExhausted, type Partial, type Reason, type SandboxError } from "../SandboxError.ts"
import type { Limits } from "../SandboxSpec.ts"
import type { Broken } from "./SandboxGuard.ts"

/** What a command has said is known to whoever reads it. */
const nothing: Partial = { output: emptyOutput, peak: {} }

export interface CommandContext {
  readonly error: (reason: Reason) => SandboxError
  readonly broken: Effect.Effect<Broken>
  readonly inspect: (chunk: OutputChunk) => Effect.Effect<void>
  /** Known before `broken` settles, where it was this command. */
  readonly violated: () => Broken | undefined
}

/** How long what has ended a sandbox may take to be known, once a command was cut off by it. */
const reasonSecondsMax = 5

/** An engine that breaks off says less than what the kernel did to the sandbox, which is known a moment later. */
const finer = (context: CommandContext, error: Reason): Effect.Effect<never, Reason> =>
  error._tag === "ContainerFailed" || error._tag === "RuntimeUnavailable"
    ? context.broken.pipe(
        Effect.timeoutOption(Duration.seconds(reasonSecondsMax)),
        Effect.flatMap((why) => Effect.fail(Option.isSome(why) ? why.value(nothing) : error))
      )
    : Effect.fail(error)

/** Whatever is asked of a sandbox is answered at once when the sandbox is over, with the reason. */
export const unlessBroken =
  (context: CommandContext) =>
  <A, E extends Reason, R>(asked: Effect.Effect<A, E, R>): Effect.Effect<A, SandboxError, R> =>
    // In this order: of a sandbox that is over already, nothing is had, however quickly.
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
  const running = yield* unlessBroken(context)(container.exec(command))
  return {
    output: running.output.pipe(
      Stream.tap(inspect),
      Stream.interruptWhen(Effect.flatMap(broken, (why) => Effect.fail(why(nothing)))),
      Stream.catch((reason) => Stream.fromEffect(finer(context, reason))),
      Stream.mapError(error)
    ),
    exit: unlessBroken(context)(
      Effect.flatMap(running.exit, ({ exitCode, oomKilled, processesRefused, signal }) => {
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
