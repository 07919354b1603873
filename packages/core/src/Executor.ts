/**
 * The port to run commands and access files: in a sandbox, or on the host if that was chosen.
 *
 * Tools and loops depend on this port only, so that the place where they act can be replaced. An array is executed as
 * it is; a string is run by a shell. Nothing that a command started outlives its scope, unless the command ended by
 * itself and left a process running on purpose. Without a container, this applies to the command's process group only.
 */
import { Clock, Duration, Effect, Fiber, Schema, type Scope, Stream } from "effect"
import * as FailureSpan from "./internal/FailureSpan.ts"
import * as OutputCollector from "./internal/OutputCollector.ts"
import * as PartialOutput from "./internal/PartialOutput.ts"
import type { Output, OutputChunk } from "./RunResult.ts"
import * as SandboxError from "./SandboxError.ts"
import { Argument, argumentBytesMax, Environment, exceeds, problemsOf } from "./SandboxSpec.ts"
import { attribute } from "./Telemetry.ts"

/** Largest standard input of a command that is given as a whole, in bytes. Use a stream or a file for more. */
export const stdinBytesMax = 16 * 1024 * 1024

/** Largest file that can be read or written, in bytes. */
export const fileBytesMax = 16 * 1024 * 1024

/** Largest number of entries of a directory that can be listed. */
export const entriesMax = 10_000

/** Time from SIGTERM to a timed-out command until SIGKILL to it and all its children. */
export const killGraceSeconds = 2

export const shell = "/bin/sh"

/** Signals that can be sent to a command. */
export const SignalName = Schema.Literals([
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGKILL",
  "SIGUSR1",
  "SIGUSR2",
  "SIGTERM",
  "SIGCONT",
  "SIGSTOP"
])

export type SignalName = typeof SignalName.Type

/** A program and its arguments, or a line for `/bin/sh -c`. */
export type CommandLine = string | readonly [string, ...ReadonlyArray<string>]

export interface SpawnOptions {
  /** Variables for this command only, in addition to the executor's environment. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** An absolute path, as the command sees it. Defaults to the executor's workspace. */
  readonly workingDirectory?: string | undefined
  /**
   * Standard input (default empty). A stream is read while the command runs, at its pace, and its end is the end of the
   * input. It is interrupted when the command ends or closes its input. If it fails, the command is killed and fails
   * with `CommandInputFailed`.
   */
  readonly stdin?: string | Uint8Array | Stream.Stream<Uint8Array, unknown> | undefined
}

export interface ExecOptions extends SpawnOptions {
  /** Afterwards the command is ended with all its children, and fails with `CommandTimedOut`. Defaults to no limit. */
  readonly timeoutSecondsMax?: number | undefined
  /** Bytes of each of stdout and stderr kept in the result. Default and maximum: the executor's limit. */
  readonly outputRetainedBytesMax?: number | undefined
}

/** How a command ended. */
export interface CommandExit {
  /** 128 plus the signal number if a signal ended it; 127 if the program was not found, 126 if it cannot run. */
  readonly exitCode: number
  /** The signal that ended it, if any. */
  readonly signal?: string | undefined
}

export interface ExecResult extends CommandExit {
  readonly output: Output
  readonly durationMs: number
}

/** A running command. */
export interface RunningCommand {
  /**
   * For one reader, with back-pressure. Ends when the command's own process has ended and all that it wrote has been
   * delivered. Later output of its children is lost.
   */
  readonly output: Stream.Stream<OutputChunk, SandboxError.SandboxError>
  /** Settles when the command's own process has ended. If its output is not read, it may block and never end. */
  readonly exit: Effect.Effect<CommandExit, SandboxError.SandboxError>
  /** Sends a signal to the command's own process and all its children. Does nothing if it has ended. */
  readonly signal: (name: SignalName) => Effect.Effect<void, SandboxError.SandboxError>
}

export const FileType = Schema.Literals(["file", "directory", "symlink", "other"])

export const FileEntry = Schema.Struct({
  name: Schema.String,
  type: FileType,
  bytes: Schema.Int,
  /** ISO 8601. */
  modifiedAt: Schema.String
})

export type FileEntry = typeof FileEntry.Type

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

/**
 * Files of the workspace. A path is absolute, as commands see it, or relative to the workspace. Paths that leave the
 * workspace, by `..` or by a link, are refused, and so are FIFOs, devices and sockets.
 */
export interface Files<E> {
  /** Read a whole file. Refuses one of more than `bytesMax` bytes (default and maximum {@link fileBytesMax}). */
  readonly read: (
    path: string,
    options?: { readonly bytesMax?: number | undefined }
  ) => Effect.Effect<Uint8Array, E>
  /** Replace a whole file atomically: a reader sees the old or the new content. Creates missing directories. */
  readonly write: (path: string, content: string | Uint8Array) => Effect.Effect<void, E>
  /** List a directory, sorted by name. Refuses one of more than {@link entriesMax} entries. */
  readonly list: (path: string) => Effect.Effect<ReadonlyArray<FileEntry>, E>
  /** Describe a file or directory. Follows links, so the type is never `symlink`. The name is the path's last one. */
  readonly stat: (path: string) => Effect.Effect<FileEntry, E>
  /**
   * Remove anything but a directory; a link itself, not its target. With `recursive`, also removes a directory and all
   * that it contains. Never removes the workspace itself.
   */
  readonly remove: (
    path: string,
    options?: { readonly recursive?: boolean | undefined }
  ) => Effect.Effect<void, E>
}

export interface Executor {
  /** Default working directory of commands, and base of relative paths in `files`. */
  readonly workspace: string
  /** Run a command to its end. */
  readonly exec: (
    command: CommandLine,
    options?: ExecOptions
  ) => Effect.Effect<ExecResult, SandboxError.SandboxError>
  /** Start a command. Closing the scope kills it, with all its children. */
  readonly spawn: (
    command: CommandLine,
    options?: SpawnOptions
  ) => Effect.Effect<RunningCommand, SandboxError.SandboxError, Scope.Scope>
  readonly files: Files<SandboxError.SandboxError>
}

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
): Effect.Effect<Command, SandboxError.InvalidSpec> => {
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
  Effect.fail(new SandboxError.InvalidSpec({ problems }))

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
          ? failed(new SandboxError.OutputLimitExceeded({ outputBytesMax, partial: partial() }))
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
                        failed(new SandboxError.CommandTimedOut({ timeoutSecondsMax, partial: partial() }))
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
