/**
 * Runs commands and accesses files on the host itself, without a sandbox: a fallback that the operator must choose.
 *
 * Commands have all rights of this program's user. Only file access, and the directory in which a command starts, are
 * confined to the workspace. A command is a process group: when it is cut off, its group is killed. A process that
 * leaves the group (`setsid`) may survive, and only a container can prevent that. `ExecutorContract` states the rest.
 */
import * as CommandInput from "@cogni/sandbox-core/CommandInput"
import type * as Executor from "@cogni/sandbox-core/Executor"
import * as ExecutorCommand from "@cogni/sandbox-core/ExecutorCommand"
import { type Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { CommandRefused, type FileRefused } from "@cogni/sandbox-core/SandboxReason"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import type * as WorkspaceWalk from "@cogni/sandbox-host-files/WorkspaceWalk"
import { Array as Arr, Config, Effect, FileSystem, type Scope } from "effect"
import type { ChildProcessSpawner } from "effect/process/ChildProcessSpawner"
import { isAbsolute } from "node:path"
import * as HostCommand from "../internal/HostCommand.ts"

export interface HostExecutorOptions {
  /** Absolute path of an existing directory. */
  readonly workspace: string
  /** Environment of every command (default: {@link environmentNames} of this program's environment). */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Limits of one command. */
  readonly limits: {
    readonly outputBytesMax: number
    readonly outputRetainedBytesMax: number
  }
}

/** Variables of this program's environment that commands get. Any other variable may contain a key. */
export const environmentNames: ReadonlyArray<string> = [
  "PATH",
  "HOME",
  "USER",
  "LOGNAME",
  "SHELL",
  "TERM",
  "TMPDIR",
  "TZ",
  "LANG",
  "LANGUAGE",
  "LC_ALL",
  "LC_COLLATE",
  "LC_CTYPE",
  "LC_MESSAGES",
  "LC_MONETARY",
  "LC_NUMERIC",
  "LC_TIME"
]

/**
 * Makes an executor that lives as long as the scope. Closing it kills the group of every command, including what a
 * command left running on purpose.
 *
 * Linux only: files are opened through `/proc/self/fd`.
 */
export const make = Effect.fn("HostExecutor.make")(function* (
  options: HostExecutorOptions
): Effect.fn.Return<
  Executor.Executor,
  SandboxError,
  ChildProcessSpawner | FileSystem.FileSystem | Scope.Scope
> {
  const root = yield* Effect.mapError(rootOf(options.workspace), failure)
  const env = options.env ?? (yield* ownEnvironment)
  const start = yield* HostCommand.make

  const started = Effect.fnUntraced(function* (command: ExecutorCommand.Command) {
    const { feed, stdin } = yield* CommandInput.make(command.stdin)
    const host = { command: { ...command, stdin }, env: { ...env, ...command.env } }
    const running = yield* WorkspaceFiles.withDirectory(
      root,
      command.workingDirectory ?? root.workspace,
      // The directory is held open until the command has started in it.
      (workingDirectory) => Effect.uninterruptible(start({ ...host, workingDirectory }))
    )
    return { ...running, exit: Effect.mapError(yield* feed(running), failure) }
  })

  const spawn: Executor.Executor["spawn"] = (line, spawning) =>
    ExecutorCommand.commandOf(line, spawning).pipe(
      Effect.flatMap(started),
      Effect.catchTag("FileRefused", (refused) => Effect.fail(noDirectory(refused))),
      Effect.mapError(failure)
    )

  const files = WorkspaceFiles.make(root)
  return {
    workspace: root.workspace,
    spawn,
    exec: ExecutorCommand.execOf(spawn, options.limits),
    files: {
      read: (path, reading) => Effect.mapError(files.read(path, reading), failure),
      write: (path, content) => Effect.mapError(files.write(path, content), failure),
      list: (path) => Effect.mapError(files.list(path), failure),
      stat: (path) => Effect.mapError(files.stat(path), failure),
      remove: (path, removing) => Effect.mapError(files.remove(path, removing), failure)
    }
  }
})

const failure = (reason: Reason) => new SandboxError({ reason })

const refused = (detail: string, remedy: string) => new CommandRefused({ detail, remedy })

const noDirectory = ({ detail, path, remedy }: FileRefused) =>
  refused(`its working directory ${JSON.stringify(path.slice(0, 200))} ${detail}`, remedy)

const rootOf = Effect.fnUntraced(function* (
  workspace: string
): Effect.fn.Return<WorkspaceWalk.Root, CommandRefused, FileSystem.FileSystem> {
  const fs = yield* FileSystem.FileSystem
  const hasProc = yield* Effect.orElseSucceed(fs.exists("/proc/self/fd"), () => false)
  if (!hasProc) return yield* refused("the host has no /proc", "Run commands in a sandbox, or on Linux")
  const what = `the workspace ${JSON.stringify(workspace.slice(0, 200))}`
  if (!isAbsolute(workspace)) return yield* refused(`${what} is not absolute`, "Give its absolute path")
  const real = yield* Effect.mapError(fs.realPath(workspace), ({ reason: { _tag } }) =>
    refused(`${what} cannot be opened (${_tag})`, "Create it, check its permissions, or name another")
  )
  const isDirectory = yield* Effect.orElseSucceed(
    Effect.map(fs.stat(real), ({ type }) => type === "Directory"),
    () => false
  )
  if (!isDirectory) return yield* refused(`${what} is not a directory`, "Name an existing directory")
  return { workspace: real, alias: workspace }
})

/** A variable that cannot be read counts as absent. */
const ownEnvironment = Effect.map(
  Effect.forEach(environmentNames, (name) =>
    Effect.option(Effect.map(Config.String(name), (value) => [name, value] as const))
  ),
  (entries): Readonly<Record<string, string>> => Object.fromEntries(Arr.getSomes(entries))
)
