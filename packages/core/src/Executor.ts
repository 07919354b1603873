/**
 * Where commands run and files lie: a sandbox, or the host itself where somebody has chosen that.
 *
 * Tools and loops are written against this and nothing wider, so that what they act on can be exchanged. A command is
 * executed as it is; a string is one of a shell. However a command ends, nothing that it started outlives its scope,
 * unless it ended by itself and left something running on purpose. Without a container that holds for the command's
 * process group only.
 */
import { Clock, Duration, Effect, Fiber, Schema, type Scope, Stream } from "effect"
import * as OutputCollector from "./internal/OutputCollector.ts"
import * as PartialOutput from "./internal/PartialOutput.ts"
import type { Output, OutputChunk } from "./RunResult.ts"
import * as SandboxError from "./SandboxError.ts"
import { Argument, argumentBytesMax, Environment, exceeds, problemsOf } from "./SandboxSpec.ts"

/** What a command may read on its standard input. More than this belongs into a file. */
export const stdinBytesMax = 16 * 1024 * 1024

/** One file that is read or written at once. */
export const fileBytesMax = 16 * 1024 * 1024

/** What a directory may hold to be listed. */
export const entriesMax = 10_000

/** From the SIGTERM of a command that is out of time to the SIGKILL of it and all its children. */
export const killGraceSeconds = 2

export const shell = "/bin/sh"

/** What can be sent to a command. */
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
  /** Beside what the executor's own environment has; of this command only. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** An absolute path, as the command sees it. The executor's own when left out. */
  readonly workingDirectory?: string | undefined
  /** Empty when left out. */
  readonly stdin?: string | Uint8Array | undefined
}

export interface ExecOptions extends SpawnOptions {
  /** Then it is ended with all its children, and fails as `CommandTimedOut`. Left out: as long as the executor lives. */
  readonly timeoutSecondsMax?: number | undefined
  /** Of each of stdout and stderr, kept in the result; the executor's own limit when left out. */
  readonly outputRetainedBytesMax?: number | undefined
}

/** How a command ended. */
export interface CommandExit {
  /** 128 and the number of the signal, where one ended it; 127 where there is no such program, 126 where it cannot run. */
  readonly exitCode: number
  /** What ended it, where it did not end by itself. */
  readonly signal?: string | undefined
}

export interface ExecResult extends CommandExit {
  readonly output: Output
  readonly durationMs: number
}

/** A command under way. */
export interface RunningCommand {
  /**
   * For one reader, whose pace is the command's. Ends when the command's own process has, and what it had written has
   * come; what its children write after that is lost.
   */
  readonly output: Stream.Stream<OutputChunk, SandboxError.SandboxError>
  /** Settles when the command's own process has ended. One whose output nobody reads may wait for ever to write it. */
  readonly exit: Effect.Effect<CommandExit, SandboxError.SandboxError>
  /** To the command's own process and all its children. Of one that has ended: nothing. */
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

/** The last moment that a `Date` can be. */
const momentMillisMax = 8.64e15

/**
 * An entry as it can be told, whatever is said of it: a file can bear a time that no calendar has, and a size that is
 * no number here.
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
 * Files of the workspace. A path is absolute, as commands see it, or relative to the workspace; one that leads out of
 * it, by `..` or by a link, is refused, and so is what is no plain file: FIFOs, devices, sockets.
 */
export interface Files<E> {
  /** The whole file. One of more than `bytesMax` ({@link fileBytesMax} at most and by default) is refused. */
  readonly read: (
    path: string,
    options?: { readonly bytesMax?: number | undefined }
  ) => Effect.Effect<Uint8Array, E>
  /** The whole file, in one step: whoever reads meanwhile sees the old one or the new one. Makes its directories. */
  readonly write: (path: string, content: string | Uint8Array) => Effect.Effect<void, E>
  /** By name. A directory of more than {@link entriesMax} entries is refused. */
  readonly list: (path: string) => Effect.Effect<ReadonlyArray<FileEntry>, E>
}

export interface Executor {
  /** Where commands begin, and what paths of `files` are relative to. */
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

/** A command that has been checked. */
export interface Command {
  readonly argv: readonly [string, ...Array<string>]
  readonly env: Readonly<Record<string, string>>
  readonly workingDirectory?: string | undefined
  readonly stdin?: Uint8Array | undefined
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

/** What a caller asks for as a command: every problem of it at once, as `InvalidSpec`. */
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
  const bytes = typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin
  if (bytes !== undefined && bytes.byteLength > stdinBytesMax) {
    return refused(`stdin: Expected at most ${stdinBytesMax} bytes (put more into a file of the workspace)`)
  }
  return decodeCommand({
    argv: typeof line === "string" ? [shell, "-c", line] : line,
    env,
    ...(workingDirectory === undefined ? {} : { workingDirectory })
  }).pipe(
    Effect.catch((error) => refused(...problemsOf(error))),
    Effect.map((command) => ({ ...command, ...(bytes === undefined ? {} : { stdin: bytes }) }))
  )
}

const refused = (...problems: ReadonlyArray<string>) =>
  Effect.fail(new SandboxError.InvalidSpec({ problems }))

/** `exec`, of `spawn`: output collected and bounded, time bounded, and nothing left running where either ended it. */
export const execOf =
  (
    spawn: Executor["spawn"],
    limits: { readonly outputBytesMax: number; readonly outputRetainedBytesMax: number }
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
                // Whoever has something to put away may; then it and all its children are gone, for the scope closes.
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
      return {
        ...exit,
        output: collector.output(),
        durationMs: (yield* Clock.currentTimeMillis) - startedMs
      }
    }).pipe(Effect.scoped, Effect.withSpan("Executor.exec"))

/**
 * The executor that an effect finds, anew for each call: what it acquires is held for as long as the call takes, and
 * for a command that was spawned as long as its scope.
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
      list: (path) => once(({ files }) => files.list(path))
    }
  }
}

/** 0 of what is no number. */
const within = (given: number, least: number, most: number): number =>
  Math.min(most, Math.max(least, Number.isNaN(given) ? 0 : given))

const failed = (reason: SandboxError.Reason) => Effect.fail(new SandboxError.SandboxError({ reason }))
