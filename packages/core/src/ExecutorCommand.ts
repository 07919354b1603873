/**
 * Commands of an executor as it runs them: checked, awaited with a time limit, and with their output.
 */
import { Clock, Duration, Effect, Fiber, Schema, type Scope, Stream } from "effect"
import * as FailureSpan from "./internal/FailureSpan.ts"
import * as OutputCollector from "./internal/OutputCollector.ts"
import * as PartialOutput from "./internal/PartialOutput.ts"
import * as SandboxError from "./SandboxError.ts"
import * as SandboxReason from "./SandboxReason.ts"
import { Argument, argumentBytesMax, Environment, exceeds } from "./SpecFields.ts"
import { problemsOf } from "./SchemaIssues.ts"
import { attribute } from "./Telemetry.ts"
import { stdinBytesMax, killGraceSeconds } from "./ExecutorLimits.ts"
import { type Executor } from "./Executor.ts"
import type { FileEntry } from "./ExecutorValues.ts"
import { type CommandLine, type SpawnOptions } from "./ExecutorValues.ts"

export const shell = "/bin/sh"

/** The latest time that a `Date` can represent. */
const momentMillisMax = 8.64e15

/**
 * Makes a valid entry of any metadata. A file can have a time that a `Date` cannot represent, and a size that is not a
 * safe integer.
 */
export const fileEntry = (
  found: Pick<FileEntry, "name" | "type" | "bytes"> & { readonly modifiedMillis: number }
): FileEntry => ({
  name: found.name,
  type: found.type,
  bytes: within(Math.trunc(found.bytes), 0, Number.MAX_SAFE_INTEGER),
  modifiedAt: new Date(within(found.modifiedMillis, -momentMillisMax, momentMillisMax)).toISOString()
})

/** A validated command. */
export interface Command {
  readonly argv: readonly [string, ...Array<string>]
  readonly env: Readonly<Record<string, string>>
  readonly workingDirectory?: string | undefined
  readonly stdin?: Uint8Array | Stream.Stream<Uint8Array, unknown> | undefined
}

const CommandSchema = Schema.Struct({
  argv: Schema.NonEmptyArray(Argument),
  env: Environment,
  workingDirectory: Schema.optionalKey(
    Schema.String.check(
      Schema.isPattern(/^\/[^\0\n\r]{0,4094}$/u, {
        expected: "an absolute path without NUL or line break, of at most 4095 characters"
      })
    )
  )
})

const decodeCommand = Schema.decodeUnknownEffect(CommandSchema, { errors: "all", onExcessProperty: "error" })

/** Validates a command, or fails with its problems as `InvalidSpec`. */
export const commandOf = (
  line: CommandLine,
  options: SpawnOptions = {}
): Effect.Effect<Command, SandboxReason.InvalidSpec> => {
  const { env = {}, stdin, workingDirectory } = options
  if (typeof line === "string" && exceeds(line, argumentBytesMax)) {
    return refused(
      `command: Expected at most ${argumentBytesMax} bytes (the kernel's cap on one argument; write a script into the workspace, or send it on stdin)`
    )
  }
  const input = typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin
  if (input !== undefined && !(input instanceof Uint8Array) && !Stream.isStream(input)) {
    return refused("stdin: Expected a string, a Uint8Array or a stream")
  }
  if (input instanceof Uint8Array && input.byteLength > stdinBytesMax) {
    return refused(
      `stdin: Expected at most ${stdinBytesMax} bytes (give it as a stream, or put it into a file of the workspace)`
    )
  }
  return decodeCommand({
    argv: typeof line === "string" ? [shell, "-c", line] : line,
    env,
    ...(workingDirectory === undefined ? {} : { workingDirectory })
  }).pipe(
    Effect.catch((error) => refused(...problemsOf(error))),
    Effect.map((command) => ({ ...command, ...(input === undefined ? {} : { stdin: input }) }))
  )
}

const refused = (...problems: ReadonlyArray<string>) =>
  Effect.fail(new SandboxReason.InvalidSpec({ problems }))

/** Implements `exec` with `spawn`: bounds output and time, and leaves nothing running if either ended the command. */
export const execOf =
  (
    spawn: Executor["spawn"],
    limits: { readonly outputBytesMax: number; readonly outputRetainedBytesMax: number },
    /** Attributes of the span of each command, such as the ID of the run. */
    attributes: Readonly<Record<string, string>> = {}
  ): Executor["exec"] =>
  (line, options = {}) =>
    Effect.gen(function* () {
      const { outputRetainedBytesMax, timeoutSecondsMax } = options
      const { outputBytesMax } = limits
      const startedMs = yield* Clock.currentTimeMillis
      const collector = OutputCollector.make(
        Math.min(outputRetainedBytesMax ?? limits.outputRetainedBytesMax, limits.outputRetainedBytesMax)
      )
      const partial = () => ({ output: collector.output(), peak: {} })
      const withOutput = Effect.mapError((error: SandboxError.SandboxError) =>
        PartialOutput.withOutput(error, collector.output())
      )
      const running = yield* spawn(line, options)
      const ended = yield* Stream.runForEach(running.output, (chunk) =>
        collector.add(chunk) > outputBytesMax
          ? failed(new SandboxReason.OutputLimitExceeded({ outputBytesMax, partial: partial() }))
          : Effect.void
      ).pipe(Effect.andThen(running.exit), withOutput, Effect.forkScoped({ startImmediately: true }))
      const exit = yield* timeoutSecondsMax === undefined
        ? Fiber.join(ended)
        : Fiber.join(ended).pipe(
            Effect.timeoutOrElse({
              duration: Duration.seconds(timeoutSecondsMax),
              orElse: () =>
                // The command may clean up first. Then the scope closes and kills it with all its children.
                running
                  .signal("SIGTERM")
                  .pipe(
                    Effect.andThen(Fiber.join(ended)),
                    Effect.timeoutOption(Duration.seconds(killGraceSeconds)),
                    Effect.ignore,
                    Effect.andThen(
                      Effect.suspend(() =>
                        failed(new SandboxReason.CommandTimedOut({ timeoutSecondsMax, partial: partial() }))
                      )
                    )
                  )
            })
          )
      yield* Effect.annotateCurrentSpan(attribute.exitCode, exit.exitCode)
      return {
        ...exit,
        output: collector.output(),
        durationMs: (yield* Clock.currentTimeMillis) - startedMs
      }
    }).pipe(Effect.scoped, FailureSpan.marked, Effect.withSpan("Executor.exec", { attributes }))

/**
 * Makes an executor that runs an effect for each call to find the actual executor. The effect's resources are released
 * after the call, or, for a spawned command, when its scope closes.
 */
export const unwrap = (
  workspace: string,
  found: Effect.Effect<Executor, SandboxError.SandboxError, Scope.Scope>
): Executor => {
  const once = <A>(use: (executor: Executor) => Effect.Effect<A, SandboxError.SandboxError>) =>
    Effect.scoped(Effect.flatMap(found, use))
  return {
    workspace,
    exec: (command, options) => once((executor) => executor.exec(command, options)),
    spawn: (command, options) => Effect.flatMap(found, (executor) => executor.spawn(command, options)),
    files: {
      read: (path, options) => once(({ files }) => files.read(path, options)),
      write: (path, content) => once(({ files }) => files.write(path, content)),
      list: (path) => once(({ files }) => files.list(path)),
      stat: (path) => once(({ files }) => files.stat(path)),
      remove: (path, options) => once(({ files }) => files.remove(path, options))
    }
  }
}

/** NaN becomes 0. */
const within = (given: number, least: number, most: number): number =>
  Math.min(most, Math.max(least, Number.isNaN(given) ? 0 : given))

const failed = (reason: SandboxError.Reason) => Effect.fail(new SandboxError.SandboxError({ reason }))
