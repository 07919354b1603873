/** One command on the host. It starts in its own process group, which is killed when the command is cut off. */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import type { ExecSpec } from "@cogni/sandbox-core/ContainerRuntime"
import type { RunningCommand } from "@cogni/sandbox-core/Executor"
import type { CommandExit, SignalName } from "@cogni/sandbox-core/ExecutorValues"
import { CommandRefused } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Exit, Fiber, Option, type PlatformError, Ref, Result, Scope, Stream } from "effect"
import * as ChildProcess from "effect/process/ChildProcess"
import { type ChildProcessHandle, ChildProcessSpawner } from "effect/process/ChildProcessSpawner"
import { constants } from "node:os"
import * as HostOutput from "./HostOutput.ts"

export interface HostCommand {
  readonly command: ExecSpec
  /** Path of a directory that is held open. */
  readonly workingDirectory: string
  readonly env: Readonly<Record<string, string>>
}

/** A command that cannot fail any more. */
interface StartedCommand extends RunningCommand {
  readonly exit: Effect.Effect<CommandExit>
  readonly signal: (name: SignalName) => Effect.Effect<void>
}

/** Exit code and message of a program that cannot run, as in shells (POSIX, "Command Search and Execution"). */
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

/** Signals that ask a command to end. After one of these, the group is killed when the command's scope closes. */
const endings = new Set<SignalName>(["SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM"])

/** How long a killed group may take to end. After that, a warning is logged and the wait ends. */
const closeSecondsMax = 5

/** How often a group that was left running is checked for members. */
const watchInterval = "1 second"

/** Returns a function that starts commands. Closing the scope kills all of their groups that are still alive. */
export const make = Effect.gen(function* () {
  const spawner = yield* ChildProcessSpawner
  const executor = yield* Effect.scope

  return Effect.fnUntraced(function* (
    host: HostCommand
  ): Effect.fn.Return<StartedCommand, CommandRefused, Scope.Scope> {
    // Closing it kills the group, unless the command has succeeded and `unref` was called.
    const group = yield* Scope.fork(executor)
    const close = bounded(Scope.close(group, Exit.void), host.command.argv[0])
    const spawned = yield* spawn(spawner, host).pipe(Scope.provide(group), Effect.result)
    if (Result.isFailure(spawned)) {
      yield* close
      return yield* neverStarted(host.command, spawned.failure)
    }
    const { exitCode, isRunning, pid, unref } = spawned.success
    const exit = exitCode.pipe(
      Effect.map((exitCode): CommandExit => ({ exitCode })),
      Effect.catch(endedBySignal)
    )
    const isLive = Effect.orDie(isRunning)
    const output = yield* HostOutput.make(spawned.success, { exited: exit, isLive })
    const wasTold = yield* Ref.make(false)
    const leave = Effect.andThen(Effect.orDie(unref), close)
    // A group's number is free again once the group is empty, so one that was left running is watched until then.
    const watch = Effect.sleep(watchInterval).pipe(
      Effect.repeat({ while: () => signalGroup(pid, 0) }),
      Effect.andThen(leave),
      Effect.forkIn(executor)
    )
    yield* Effect.addFinalizer(
      Effect.fnUntraced(function* () {
        yield* output.drop
        if (yield* isLive) {
          // Closing ends the input first. The command would take a part of it for the whole, and act on that.
          signalGroup(pid, "SIGKILL")
          return yield* close
        }
        if (yield* Ref.get(wasTold)) return yield* close
        yield* signalGroup(pid, 0) ? watch : leave
      })
    )
    return {
      output: output.stream,
      exit,
      signal: Effect.fnUntraced(function* (name) {
        if (!(yield* isLive)) return
        if (endings.has(name)) yield* Ref.set(wasTold, true)
        signalGroup(pid, name)
      })
    }
  })
})

/** Bounds the wait: a process stuck in the kernel, such as on an unresponsive disk, must not block a session. */
const bounded = (close: Effect.Effect<void>, program: string): Effect.Effect<void> =>
  Effect.forkDetach(close, { startImmediately: true }).pipe(
    Effect.flatMap((fiber) =>
      Effect.interruptible(Fiber.await(fiber)).pipe(Effect.timeoutOption(`${closeSecondsMax} seconds`))
    ),
    Effect.flatMap((closed) =>
      Option.isSome(closed)
        ? Effect.void
        : Effect.logWarning(
            `the command ${program} and its group did not end within ${closeSecondsMax} s of being killed`
          )
    ),
    Effect.uninterruptible
  )

/** Fails with the code of the kernel's error, which Node reports for some errors and throws for others. */
const spawn = (
  spawner: ChildProcessSpawner["Service"],
  { command, env, workingDirectory }: HostCommand
): Effect.Effect<ChildProcessHandle, string, Scope.Scope> => {
  const { argv, stdin } = command
  const [program, ...args] = argv
  // Node takes no empty name; the kernel finds no program of that name.
  if (program === "") return Effect.fail("ENOENT")
  const child = ChildProcess.make(program, args, {
    cwd: workingDirectory,
    env,
    detached: true,
    killSignal: "SIGKILL",
    stdin: inputOf(stdin)
  })
  return spawner.spawn(child).pipe(
    Effect.mapError(({ cause }) => codeOf(cause)),
    Effect.catchDefect((thrown) => Effect.fail(codeOf(thrown)))
  )
}

const inputOf = (stdin: ExecSpec["stdin"]) =>
  Stream.isStream(stdin)
    ? stdin
    : stdin === undefined || stdin.byteLength === 0
      ? "ignore"
      : Stream.succeed(stdin)

const codeOf = (thrown: unknown): string =>
  (thrown as NodeJS.ErrnoException | undefined)?.code ?? String(thrown)

/** Returns whether the group had a member to signal; signal 0 only checks. */
const signalGroup = (pid: number, signal: SignalName | 0): boolean => {
  try {
    return process.kill(-pid, signal)
  } catch {
    return false
  }
}

/** `effect/process` reports the signal only in the text of its error. */
const endedBySignal = (error: PlatformError.PlatformError): Effect.Effect<CommandExit> => {
  const [signal] = /\bSIG[A-Z0-9]+\b/u.exec(String(error.cause)) ?? []
  return signal !== undefined && signal in constants.signals
    ? Effect.succeed({ exitCode: 128 + constants.signals[signal as NodeJS.Signals], signal })
    : Effect.die(error)
}

/** Represents a program that cannot run as a command that reports it and ends. Any other failure is the host's. */
const neverStarted = (command: ExecSpec, code: string): Effect.Effect<StartedCommand, CommandRefused> => {
  const said = unstarted[code]
  if (said === undefined) return Effect.fail(refusals[code] ?? refused(code))
  const bytes = new TextEncoder().encode(`${command.argv[0]}: ${said.why}\n`)
  return Effect.succeed({
    output: Stream.make<[OutputChunk]>({ channel: "stderr", bytes }),
    exit: Effect.succeed({ exitCode: said.exitCode }),
    signal: () => Effect.void
  })
}

const refused = (code: string) =>
  new CommandRefused({
    detail: `the host cannot start another process (${code})`,
    remedy: "Check its memory, processes and open files (ulimit -a)"
  })

const refusals: Readonly<Record<string, CommandRefused>> = {
  E2BIG: new CommandRefused({
    detail: "its arguments and environment together exceed the kernel's limit",
    remedy: "Put them into a file of the workspace, or send them on stdin"
  })
}
