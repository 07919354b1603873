/**
 * The values that an executor takes and returns: commands, signals, results and entries of a directory.
 */
import type { Stream } from "effect"
import { Schema } from "effect"
import type { Output } from "./RunResult.ts"

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

export const FileType = Schema.Literals(["file", "directory", "symlink", "other"])

export const FileEntry = Schema.Struct({
  name: Schema.String,
  type: FileType,
  bytes: Schema.Int,
  /** ISO 8601. */
  modifiedAt: Schema.String
})

export type FileEntry = typeof FileEntry.Type
