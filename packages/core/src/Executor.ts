/**
 * The port to run commands and access files: in a sandbox, or on the host if that was chosen.
 *
 * Tools and loops depend on this port only, so that the place where they act can be replaced. An array is executed as
 * it is; a string is run by a shell. Nothing that a command started outlives its scope, unless the command ended by
 * itself and left a process running on purpose. Without a container, this applies to the command's process group only.
 */
import type { Effect, Stream } from "effect"
import { type Scope } from "effect"
import type { OutputChunk } from "./RunResult.ts"
import type * as SandboxError from "./SandboxError.ts"
import type { SignalName, FileEntry } from "./ExecutorValues.ts"
import {
  type CommandLine,
  type SpawnOptions,
  type ExecOptions,
  type CommandExit,
  type ExecResult
} from "./ExecutorValues.ts"

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
