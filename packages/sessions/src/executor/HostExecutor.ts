/**
 * Commands and files on the host itself, with nothing between them and it.
 *
 * For those who have chosen that: what an agent runs here can do whatever this program's user can. Only files and where
 * a command begins are held to the workspace. In all else it behaves as a sandbox does; `ExecutorContract` says how.
 */
import * as Executor from "@cogni/sandbox-core/Executor"
import { CommandRefused, type FileRefused, type Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import type * as WorkspaceWalk from "@cogni/sandbox-host-files/WorkspaceWalk"
import { Config, Effect, Option, type Scope } from "effect"
import { randomBytes } from "node:crypto"
import { realpath, stat } from "node:fs/promises"
import { isAbsolute } from "node:path"
import * as HostCommand from "../internal/HostCommand.ts"
import * as HostPipes from "../internal/HostPipes.ts"
import * as HostProcesses from "../internal/HostProcesses.ts"

export interface HostExecutorOptions {
  /** An absolute path of a directory that is there. */
  readonly workspace: string
  /** What every command has in its environment. {@link environmentNames} of this program's when left out. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Of one command. */
  readonly limits: {
    readonly outputBytesMax: number
    readonly outputRetainedBytesMax: number
  }
}

/** What commands are given of this program's own environment; all else may be a key. */
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

/** Where programs are, if nobody says. */
const searchPathDefault = "/usr/local/bin:/usr/bin:/bin"

/**
 * For as long as the scope lives. Closing it kills what is left of every command, what was left running on purpose too.
 *
 * Linux only: what came of a command is found through `/proc`. A process that has cleared its environment, has left the
 * session, has lost its parent and holds no pipe of its command's, all at once, is not found.
 */
export const make = Effect.fn("HostExecutor.make")(function* (
  options: HostExecutorOptions
): Effect.fn.Return<Executor.Executor, SandboxError, Scope.Scope> {
  const root = yield* Effect.mapError(rootOf(options.workspace), failure)
  const env = options.env ?? (yield* ownEnvironment)
  const outerMarks = yield* read(HostProcesses.markVariable)
  const executor = randomBytes(8).toString("hex")
  const pipes = yield* HostPipes.make(executor, env["PATH"] ?? searchPathDefault)
  // The first command's: nothing of a later one is older.
  let startedTicks: number | undefined
  yield* Effect.addFinalizer(() =>
    startedTicks === undefined
      ? Effect.void
      : HostCommand.killAll({ mark: executor, pipes: pipes.prefix, startedTicks })
  )

  const start = Effect.fnUntraced(function* (command: Executor.Command, workingDirectory: string) {
    const opened = yield* pipes.open(command.stdin !== undefined && command.stdin.byteLength > 0)
    const begun = yield* HostCommand.start({
      command,
      workingDirectory,
      env: { ...env, ...command.env },
      mark: `${executor}.${opened.command}`,
      outerMarks,
      pipes: opened
    })
    startedTicks ??= begun.root?.startedTicks
    return begun.running
  })

  const spawn: Executor.Executor["spawn"] = (line, spawning) =>
    Executor.commandOf(line, spawning).pipe(
      Effect.flatMap((command) =>
        WorkspaceFiles.withDirectory(root, command.workingDirectory ?? root.workspace, (directory) =>
          // What has been opened for it is closed with it.
          Effect.uninterruptible(start(command, directory))
        )
      ),
      Effect.catchTag("FileRefused", (refused) => Effect.fail(noDirectory(refused))),
      Effect.mapError(failure)
    )

  const files = WorkspaceFiles.make(root)
  return {
    workspace: root.workspace,
    spawn,
    exec: Executor.execOf(spawn, options.limits),
    files: {
      read: (path, reading) => Effect.mapError(files.read(path, reading), failure),
      write: (path, content) => Effect.mapError(files.write(path, content), failure),
      list: (path) => Effect.mapError(files.list(path), failure)
    }
  }
})

const failure = (reason: Reason) => new SandboxError({ reason })

const refused = (detail: string, remedy: string) => new CommandRefused({ detail, remedy })

const noDirectory = ({ detail, path, remedy }: FileRefused) =>
  refused(`its working directory ${JSON.stringify(path.slice(0, 200))} ${detail}`, remedy)

const rootOf = (workspace: string): Effect.Effect<WorkspaceWalk.Root, CommandRefused> =>
  Effect.tryPromise({
    try: async () => {
      if (!(await HostProcesses.isOwn())) {
        throw refused(
          "the host has no /proc, or that of other processes",
          "Run commands in a sandbox: what came of a command is only found through a Linux /proc of its own"
        )
      }
      const what = `the workspace ${JSON.stringify(workspace.slice(0, 200))}`
      if (!isAbsolute(workspace)) throw refused(`${what} is not absolute`, "Give its whole path")
      const real = await realpath(workspace).catch((thrown: unknown) => {
        throw refused(`${what} cannot be had (${String(thrown).slice(0, 200)})`, "Make it, or name another")
      })
      if (!(await stat(real)).isDirectory())
        throw refused(`${what} is not a directory`, "Name a directory that is there")
      return { workspace: real, alias: workspace }
    },
    catch: (thrown) =>
      thrown instanceof CommandRefused
        ? thrown
        : refused(`the workspace cannot be had (${String(thrown).slice(0, 200)})`, "Look at its permissions")
  })

/** A variable of this program's; one that cannot be read is one that is not there. */
const read = (name: string): Effect.Effect<string | undefined> =>
  Effect.map(Effect.option(Config.String(name)), Option.getOrUndefined)

const ownEnvironment = Effect.map(
  Effect.forEach(environmentNames, (name) => Effect.map(read(name), (value) => [name, value] as const)),
  (entries): Readonly<Record<string, string>> =>
    Object.fromEntries(entries.filter((entry): entry is readonly [string, string] => entry[1] !== undefined))
)
