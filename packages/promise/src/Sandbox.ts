/** A sandbox that runs many commands, with Promises. */
import type * as ExecutorValues from "@cogni/sandbox-core/ExecutorValues"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"

/** A program and its arguments, or a line for `/bin/sh -c`. */
export type Command = ExecutorValues.CommandLine

interface Signal {
  /** Ends the operation when it aborts. The Promise then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

export interface Spawn extends Omit<ExecutorValues.SpawnOptions, "stdin">, Signal {
  /**
   * Standard input (default empty). An iterable is read while the command runs, at its pace, and its end is the end of
   * the input. When the command ends or closes its input, the iterator's `return` is called. If the iterable throws,
   * the command is killed, and fails with `CommandInputFailed`.
   */
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array> | undefined
}

export interface Exec extends Spawn, Omit<ExecutorValues.ExecOptions, keyof ExecutorValues.SpawnOptions> {}

/** Result of a command. An exit code other than 0 is a result, not an error. */
export interface ExecEnd extends ExecutorValues.ExecResult {
  /** Standard output as text. `output.stdout.truncated` tells whether it is complete. */
  readonly stdout: string
  /** Standard error as text. */
  readonly stderr: string
}

/** A running command. Disposing of it kills it, with all its children. */
export interface Process extends AsyncDisposable {
  /** For one reader, with back-pressure. */
  readonly output: AsyncIterable<{ readonly channel: "stdout" | "stderr"; readonly bytes: Uint8Array }>
  /** Settles when the command has ended. If its output is not read, it may block and never end. */
  readonly exit: Promise<ExecutorValues.CommandExit>
  readonly kill: (signal?: ExecutorValues.SignalName) => Promise<void>
}

/** Files of the workspace. A path is absolute, as commands see it, or relative to the workspace. */
export interface Files {
  readonly read: (path: string, options?: Signal) => Promise<Uint8Array>
  readonly readText: (path: string, options?: Signal) => Promise<string>
  /** Replaces a whole file, and creates missing directories. */
  readonly write: (path: string, content: string | Uint8Array, options?: Signal) => Promise<void>
  readonly list: (path: string, options?: Signal) => Promise<ReadonlyArray<ExecutorValues.FileEntry>>
  /** Describes a file or directory, and follows links. Returns undefined if it does not exist. */
  readonly stat: (path: string, options?: Signal) => Promise<ExecutorValues.FileEntry | undefined>
  /**
   * Removes anything but a directory; a link itself, not its target. With `recursive`, also removes a directory and all
   * that it contains. Returns whether it existed.
   */
  readonly remove: (
    path: string,
    options?: Signal & { readonly recursive?: boolean | undefined }
  ) => Promise<boolean>
}

/** An open sandbox. Every call rejects with a `SandboxError`. Disposing of it removes its container and its files. */
export interface Sandbox extends AsyncDisposable {
  readonly runId: string
  /** Default working directory of commands, as they see it. */
  readonly workspace: string
  readonly exec: (command: Command, options?: Exec) => Promise<ExecEnd>
  readonly spawn: (command: Command, options?: Spawn) => Promise<Process>
  readonly files: Files
  /** Settles when the sandbox is over: with the error that ended it, or with undefined if it was closed. */
  readonly ended: Promise<SandboxError | undefined>
  /** Removes the container and its files. Repeated calls return the same Promise. */
  readonly close: () => Promise<void>
}
