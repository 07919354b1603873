/**
 * Pipes between the host and its commands.
 *
 * Node gives a child sockets, which nobody can open again: `echo no > /dev/stderr` and `cat /dev/stdin` fail on them,
 * and do not in a sandbox. Node has no pipe(2) either, so each is a FIFO whose name is gone once both ends are open.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { CommandRefused } from "@cogni/sandbox-core/SandboxError"
import { Effect, type Scope, Semaphore } from "effect"
import { execFile } from "node:child_process"
import { closeSync, constants, rmSync } from "node:fs"
import { rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"

/** Two descriptors: one is the host's, one is for the command and closed once that has it. */
export interface Pipe {
  readonly mine: number
  readonly its: number
}

export interface CommandPipes {
  /** Counts the commands of an executor. */
  readonly command: number
  /** What /proc calls its pipes begins with this, wherever they have gone. */
  readonly prefix: string
  readonly stdin: Pipe | undefined
  readonly stdout: Pipe
  readonly stderr: Pipe
}

export interface Pipes {
  /** What the names of all pipes begin with. */
  readonly prefix: string
  readonly open: (hasStdin: boolean) => Effect.Effect<CommandPipes, CommandRefused>
}

/** For so many commands one mkfifo(1) is started. */
const commandsAtOnce = 16

const mkfifoSecondsMax = 10

const channels = ["stdin", "stdout", "stderr"] as const

/** For as long as the scope lives. `executor` is in all their names; `searchPath` is where mkfifo(1) is looked for. */
export const make = Effect.fnUntraced(function* (
  executor: string,
  searchPath: string
): Effect.fn.Return<Pipes, never, Scope.Scope> {
  const prefix = join(tmpdir(), `cogni-host-${executor}-`)
  const one = yield* Semaphore.make(1)
  let batch: { readonly directory: string; readonly commands: Array<number> } | undefined
  let made = 0

  const discard = Effect.promise(async () => {
    const directory = batch?.directory
    batch = undefined
    if (directory !== undefined) await rm(directory, { recursive: true, force: true })
  })
  yield* Effect.addFinalizer(() => discard)

  const more = Effect.tryPromise({
    try: async () => {
      const directory = await OwnFiles.temporaryDirectory(`cogni-host-${executor}-`)
      const commands = Array.from({ length: commandsAtOnce }, () => made++)
      batch = { directory, commands }
      const paths = commands.flatMap((command) =>
        channels.map((channel) => pathOf(directory, command, channel))
      )
      await promisify(execFile)("mkfifo", ["-m", "600", "--", ...paths], {
        env: { PATH: searchPath },
        timeout: mkfifoSecondsMax * 1000
      })
    },
    catch: refused
  })

  const next = (hasStdin: boolean) =>
    Effect.try({
      try: () => {
        const { commands, directory } = batch!
        const command = commands.shift()!
        return { command, prefix: pathOf(directory, command, ""), ...opened(directory, command, hasStdin) }
      },
      catch: refused
    })

  return {
    prefix,
    open: (hasStdin) => {
      const fresh = Effect.andThen(discard, more)
      const any = Effect.suspend(() => ((batch?.commands.length ?? 0) > 0 ? Effect.void : fresh))
      // What lies in a temporary directory for long may have been tidied away.
      const again = Effect.andThen(fresh, next(hasStdin))
      return Effect.andThen(any, next(hasStdin)).pipe(
        Effect.catch(() => again),
        one.withPermits(1)
      )
    }
  }
})

export const close = (descriptor: number): void => {
  try {
    closeSync(descriptor)
  } catch {
    // It was closed with the stream that read or wrote it.
  }
}

const pathOf = (directory: string, command: number, channel: string) => `${directory}/${command}.${channel}`

const { O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY } = constants

/** Each end has a description of its own: that the host does not wait for it is nothing the command sees. */
const opened = (directory: string, command: number, hasStdin: boolean) => {
  const open: Array<number> = []
  const end = (path: string, flags: number) => {
    const descriptor = OwnFiles.openPipeSync(path, flags)
    open.push(descriptor)
    return descriptor
  }
  const reading = (path: string): Pipe => ({
    mine: end(path, O_RDONLY | O_NONBLOCK),
    its: end(path, O_WRONLY)
  })
  const writing = (path: string): Pipe => {
    // Neither end can be opened alone without waiting for the other.
    const both = OwnFiles.openPipeSync(path, O_RDWR)
    try {
      return { its: end(path, O_RDONLY), mine: end(path, O_WRONLY | O_NONBLOCK) }
    } finally {
      closeSync(both)
    }
  }
  try {
    return {
      stdin: hasStdin ? writing(pathOf(directory, command, "stdin")) : undefined,
      stdout: reading(pathOf(directory, command, "stdout")),
      stderr: reading(pathOf(directory, command, "stderr"))
    }
  } catch (thrown) {
    for (const descriptor of open) close(descriptor)
    throw thrown
  } finally {
    for (const channel of channels) rmSync(pathOf(directory, command, channel), { force: true })
  }
}

const refused = (thrown: unknown) =>
  new CommandRefused({
    detail: `the host has no pipe for it (${thrown instanceof Error ? thrown.message.slice(0, 500) : String(thrown)})`,
    remedy: "Look at the host's temporary directory, at its limit of open files, and that mkfifo is installed"
  })
