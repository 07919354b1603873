/** One command on the host: started in a session of its own, and gone with all that came of it when it is cut off. */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import type { Command, CommandExit, RunningCommand, SignalName } from "@cogni/sandbox-core/Executor"
import { CommandRefused } from "@cogni/sandbox-core/SandboxError"
import { Deferred, Effect, type Scope, Stream } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { Socket } from "node:net"
import { constants } from "node:os"
import * as HostOutput from "./HostOutput.ts"
import * as HostPipes from "./HostPipes.ts"
import * as HostProcesses from "./HostProcesses.ts"

export interface HostCommand {
  readonly command: Command
  /** As the kernel can be given it: a directory that is held open. */
  readonly workingDirectory: string
  /** All of its environment but the mark. */
  readonly env: Readonly<Record<string, string>>
  readonly mark: string
  /** Of those that this host runs under itself, to be found by them too. */
  readonly outerMarks: string | undefined
  readonly pipes: HostPipes.CommandPipes
}

/** What the kernel says of a program as shells say it, and end with it (POSIX, "Command Search and Execution"). */
const unstarted: Readonly<Record<string, { readonly exitCode: number; readonly why: string }>> = {
  ENOENT: { exitCode: 127, why: "not found" },
  ENOTDIR: { exitCode: 127, why: "not found" },
  ELOOP: { exitCode: 127, why: "too many links" },
  ENAMETOOLONG: { exitCode: 127, why: "name too long" },
  EACCES: { exitCode: 126, why: "permission denied" },
  EPERM: { exitCode: 126, why: "permission denied" },
  EISDIR: { exitCode: 126, why: "is a directory" },
  ENOEXEC: { exitCode: 126, why: "exec format error" },
  ETXTBSY: { exitCode: 126, why: "text file busy" }
}

/** Whoever is sent one of these is told to end: what it leaves running then was not left on purpose. */
const endings = new Set<SignalName>(["SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM"])

export interface Begun {
  readonly running: RunningCommand
  /** Absent where there was nothing to begin. */
  readonly root?: HostProcesses.Root | undefined
  readonly end: Effect.Effect<void>
}

/** Closing the scope kills it and all that came of it, unless it has ended by itself. */
export const start = Effect.fnUntraced(function* (
  command: HostCommand
): Effect.fn.Return<Begun, CommandRefused, Scope.Scope> {
  return yield* Effect.acquireRelease(begin(command), ({ end }) => end)
})

/** Whether all of it is gone. What is not bears another user's name, or hangs in the kernel. */
export const killAll = (search: HostProcesses.Search, known?: HostProcesses.Known): Effect.Effect<boolean> =>
  Effect.promise(() => HostProcesses.killAll(search, known)).pipe(
    Effect.tap((left) =>
      left.length === 0
        ? Effect.void
        : Effect.logWarning(
            `processes ${left.join(", ")} of a command on the host cannot be killed. See whose they are, and end them`
          )
    ),
    Effect.map((left) => left.length === 0)
  )

interface Child {
  readonly root: HostProcesses.Root
  readonly output: HostOutput.HostOutput
  readonly exited: Deferred.Deferred<CommandExit>
  readonly hasExited: () => boolean
}

const begin = Effect.fnUntraced(function* (host: HostCommand): Effect.fn.Return<Begun, CommandRefused> {
  const launched = launch(host)
  const { child } = launched
  if (child === undefined) return yield* neverBegan(host.command, yield* launched.code)
  const { exited, hasExited, output, root } = child
  const known = HostProcesses.nothing()
  const search = { mark: host.mark, pipes: host.pipes.prefix, root, startedTicks: root.startedTicks }
  let wasTold = false
  return {
    root,
    end: Effect.suspend(() =>
      hasExited() && !wasTold
        ? Effect.sync(() => output.drop())
        : killAll(search, known).pipe(
            Effect.flatMap((areGone) => (areGone ? Effect.asVoid(Deferred.await(exited)) : Effect.void)),
            Effect.andThen(Effect.sync(() => output.close()))
          )
    ),
    running: {
      output: output.stream,
      exit: Deferred.await(exited),
      signal: (name) =>
        Effect.promise(async () => {
          if (hasExited()) return
          if (endings.has(name)) wasTold = true
          await HostProcesses.signal(search, known, name)
        })
    }
  }
})

/** What the kernel says is known when this returns: it has waited for the exec(2) of the child. */
const launch = (
  host: HostCommand
): { readonly child: Child } | { readonly child?: undefined; readonly code: Effect.Effect<string> } => {
  const { command, env, mark, outerMarks, pipes, workingDirectory } = host
  const [program, ...argv] = command.argv
  const unstarted = (code: Effect.Effect<string>) => {
    for (const pipe of pipesOf(pipes)) HostPipes.close(pipe.mine)
    return { code }
  }
  // Node takes no empty name; to the kernel it is one that nothing has.
  if (program === "") return unstarted(Effect.succeed("ENOENT"))
  try {
    const child = spawn(program, argv, {
      cwd: workingDirectory,
      env: {
        ...env,
        [HostProcesses.markVariable]: outerMarks === undefined ? mark : `${outerMarks}:${mark}`
      },
      detached: true,
      stdio: [pipes.stdin?.its ?? "ignore", pipes.stdout.its, pipes.stderr.its]
    })
    const { pid } = child
    if (pid !== undefined) return { child: watch(child, pid, host) }
    const failed = new Promise<string>((resolve) => child.once("error", (thrown) => resolve(codeOf(thrown))))
    return unstarted(Effect.promise(() => failed))
  } catch (thrown) {
    return unstarted(Effect.succeed(codeOf(thrown)))
  } finally {
    for (const pipe of pipesOf(pipes)) HostPipes.close(pipe.its)
  }
}

const watch = (child: ChildProcess, pid: number, { command, pipes }: HostCommand): Child => {
  // It is there, running or ended: nobody has waited for it yet.
  const root = HostProcesses.rootOf(readFileSync(`/proc/${pid}/stat`, "latin1"))
  const exited = Deferred.makeUnsafe<CommandExit>()
  const output = HostOutput.make(pipes)
  const stdin = feed(pipes.stdin, command.stdin)
  let hasExited = false
  // Of a signal that could not be sent; it was started, or it would not be here.
  child.on("error", () => undefined)
  child.once("exit", (code, signal) => {
    hasExited = true
    stdin?.destroy()
    output.exited()
    Deferred.doneUnsafe(exited, Effect.succeed(exitOf(code, signal)))
  })
  return { root, output, exited, hasExited: () => hasExited }
}

const feed = (pipe: HostPipes.Pipe | undefined, bytes: Uint8Array | undefined): Socket | undefined => {
  if (pipe === undefined || bytes === undefined) return undefined
  const stdin = new Socket({ fd: pipe.mine, readable: false, writable: true })
  // A reader that is gone is told by its exit.
  stdin.on("error", () => undefined)
  stdin.end(bytes)
  return stdin
}

const pipesOf = ({ stderr, stdin, stdout }: HostPipes.CommandPipes): ReadonlyArray<HostPipes.Pipe> =>
  stdin === undefined ? [stdout, stderr] : [stdin, stdout, stderr]

const codeOf = (thrown: unknown): string =>
  (thrown as NodeJS.ErrnoException | undefined)?.code ?? String(thrown)

const exitOf = (code: number | null, signal: NodeJS.Signals | null): CommandExit =>
  signal === null ? { exitCode: code ?? 0 } : { exitCode: 128 + constants.signals[signal], signal }

/** A program that is not there is a command that says so and ends; anything else is the host's. */
const neverBegan = (command: Command, code: string): Effect.Effect<Begun, CommandRefused> => {
  const said = unstarted[code]
  if (said === undefined) return Effect.fail(refusals[code] ?? refused(code))
  const bytes = new TextEncoder().encode(`${command.argv[0]}: ${said.why}\n`)
  return Effect.succeed({
    end: Effect.void,
    running: {
      output: Stream.make<[OutputChunk]>({ channel: "stderr", bytes }),
      exit: Effect.succeed({ exitCode: said.exitCode }),
      signal: () => Effect.void
    }
  })
}

const refused = (code: string) =>
  new CommandRefused({
    detail: `the host cannot start another process (${code})`,
    remedy: "See that it has memory, processes and open files left (ulimit -a)"
  })

const refusals: Readonly<Record<string, CommandRefused>> = {
  E2BIG: new CommandRefused({
    detail: "its arguments and its environment are together more than the kernel takes",
    remedy: "Put them into a file of the workspace, or send them on stdin"
  })
}
