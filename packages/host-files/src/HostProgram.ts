/**
 * The only module that starts host programs for our own use: git, those that remove a tree or change its owner, and the
 * one that binds directories into sandboxes.
 *
 * A program runs without a shell, with exactly the given argv and environment, in its own process group, which is
 * killed as a whole. Its time and the output that is read are limited. An executor starts the commands of an agent
 * instead.
 *
 * `effect/process` is not used: if a leader ends with 0, its spawner leaves the rest of the group alive until the scope
 * closes. A `git-remote-https` that keeps stdout open would then delay the answer until the time limit.
 */
import { Deferred, Effect, Exit, Schema, type Scope } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import type { Readable, Writable } from "node:stream"

export interface HostProgram {
  readonly name: string
  readonly argv: ReadonlyArray<string>
  /** Its complete environment. */
  readonly env: Readonly<Record<string, string>>
  /** Text that it reads from descriptor 3, hidden from other processes. */
  readonly descriptor3?: string | undefined
  /** Absent: it runs until its scope closes. */
  readonly runtimeSecondsMax?: number | undefined
  /** Limit on its stdout (default 16 MiB). Exceeding it is a failure. */
  readonly stdoutBytesMax?: number | undefined
  /**
   * Receives its stdout, which the answer then does not contain. It can pause it: a program that writes then waits.
   * One second after the end of a program without a time limit, the unread rest is lost.
   */
  readonly onStdout?: ((piece: Buffer, stdout: Pick<Readable, "pause" | "resume">) => void) | undefined
  readonly onStderr?: ((text: string) => void) | undefined
}

export interface ProgramAnswer {
  /** -1 if a signal ended it. */
  readonly exitCode: number
  readonly stdout: Buffer
  /** The last 16 KiB. */
  readonly stderr: string
}

export interface RunningProgram {
  readonly stdin: Writable
  /** Settles when it has ended and all its output has been read. */
  readonly answer: Effect.Effect<ProgramAnswer, ProgramFailed>
}

/** A program could not be started, or exceeded a limit and was killed. */
export class ProgramFailed extends Schema.TaggedError<ProgramFailed>()("ProgramFailed", {
  problem: Schema.Literals(["cannot_start", "too_slow", "too_much_output"]),
  detail: Schema.String
}) {
  override get message(): string {
    return this.detail
  }
}

/** `PATH` for host programs. */
export const searchPath = "/usr/local/bin:/usr/bin:/bin"

/** How long the output of a program without a time limit is read after its end, in seconds. */
const outputSecondsMax = 1

/** How long the end of a killed program is waited for, in seconds. A disk that hangs can delay it. */
const killedSecondsMax = 2

const stderrBytesMax = 16 * 1024
const stdoutBytesMaxDefault = 16 * 1024 * 1024

/**
 * Starts a program now. When the scope closes, kills it if it is still running, and waits for its end: a system call
 * that had begun could make a file after the program was killed.
 */
export const start = (program: HostProgram): Effect.Effect<RunningProgram, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => launch(program)),
    ({ closed, child }) =>
      Effect.suspend(() => {
        killGroup(child)
        return closed
      })
  )

/** Runs a program to its end, with empty stdin unless `input` is given. */
export const run = (
  program: HostProgram,
  input?: string | Uint8Array
): Effect.Effect<ProgramAnswer, ProgramFailed> =>
  Effect.scoped(
    Effect.flatMap(start(program), ({ answer, stdin }) => {
      stdin.end(input ?? "")
      return answer
    })
  )

/** Returns the last line of a program's output. */
export const lastLine = (text: string): string =>
  text
    .trimEnd()
    .split(/[\r\n]/u)
    .at(-1) ?? ""

const launch = (program: HostProgram) => {
  const { argv, descriptor3, env, name } = program
  const child = spawn(name, argv, {
    cwd: "/",
    detached: true,
    env,
    stdio: ["pipe", "pipe", "pipe", descriptor3 === undefined ? "ignore" : "pipe"]
  })
  // The exit reports a reader that has ended.
  for (const stream of child.stdio) stream?.on("error", () => undefined)
  if (descriptor3 !== undefined) (child.stdio[3] as Writable).end(descriptor3)
  return { child, stdin: child.stdin!, closed: closedOf(child), answer: listen(child, program) }
}

/** Waits until a program has ended, and with it those that it started: they have its output open. */
const closedOf = (child: ChildProcess): Effect.Effect<void> => {
  let isClosed = child.pid === undefined
  child.once("close", () => {
    isClosed = true
  })
  return Effect.callback((resume) => {
    if (isClosed) return resume(Effect.void)
    const done = () => {
      clearTimeout(late)
      resume(Effect.void)
    }
    // Pipes that stay open would keep this process from its exit.
    const late = setTimeout(() => {
      endOutput(child)
      done()
    }, killedSecondsMax * 1000)
    child.once("close", done)
    // Its output would otherwise not end while its reader has paused it.
    for (const output of [child.stdout, child.stderr]) output?.removeAllListeners("data").resume()
  })
}

const listen = (child: ChildProcess, program: HostProgram): RunningProgram["answer"] => {
  const { name, onStderr, onStdout, runtimeSecondsMax, stdoutBytesMax = stdoutBytesMaxDefault } = program
  const pieces: Array<Buffer> = []
  const answer = Deferred.makeUnsafe<ProgramAnswer, ProgramFailed>()
  let bytes = 0
  let said = ""
  const settle = (exit: Exit.Exit<ProgramAnswer, ProgramFailed>) => {
    clearTimeout(late)
    Deferred.doneUnsafe(answer, exit)
  }
  const fail = (problem: ProgramFailed["problem"], detail: string) => {
    settle(Exit.fail(new ProgramFailed({ problem, detail: `${name} ${detail}` })))
    killGroup(child)
  }
  const late =
    runtimeSecondsMax === undefined
      ? undefined
      : setTimeout(() => fail("too_slow", `took more than ${runtimeSecondsMax} s`), runtimeSecondsMax * 1000)
  child.once("error", () => fail("cannot_start", "cannot be started"))
  // Processes that it started, such as git-remote-https, end with it.
  child.once("exit", () => {
    signalGroup(child)
    // One that left the group can hold the output open. A program with a time limit fails by that limit instead.
    if (runtimeSecondsMax === undefined) setTimeout(() => endOutput(child), outputSecondsMax * 1000).unref()
  })
  child.once("close", (code) =>
    settle(Exit.succeed({ exitCode: code ?? -1, stdout: Buffer.concat(pieces), stderr: said }))
  )
  child.stdout!.on("data", (piece: Buffer) => {
    if (onStdout !== undefined) return onStdout(piece, child.stdout!)
    bytes += piece.byteLength
    if (bytes > stdoutBytesMax) fail("too_much_output", `wrote more than ${stdoutBytesMax} bytes`)
    else pieces.push(piece)
  })
  child.stderr!.on("data", (piece: Buffer) => {
    const text = piece.toString("utf8")
    said = (said + text).slice(-stderrBytesMax)
    onStderr?.(text)
  })
  return Deferred.await(answer)
}

const endOutput = ({ stderr, stdout }: ChildProcess): void => {
  stdout?.destroy()
  stderr?.destroy()
}

const killGroup = (child: ChildProcess): void => {
  if (child.exitCode === null && child.signalCode === null) signalGroup(child)
}

const signalGroup = ({ pid }: ChildProcess): void => {
  if (pid === undefined) return
  try {
    process.kill(-pid, "SIGKILL")
  } catch {
    // No process of the group is left.
  }
}
