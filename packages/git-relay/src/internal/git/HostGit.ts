/**
 * The one place that starts a program on the host: git, on repositories that the host made.
 *
 * No shell, argv as it is, an environment from nothing (`GitEnvironment`), the credential over a pipe, a group of its
 * own that is killed as one, and a limit on the time and on what is read.
 */
import { Effect, type Scope } from "effect"
import { type ChildProcess, execFile, spawn } from "node:child_process"
import type { Writable } from "node:stream"
import { promisify } from "node:util"
import * as CredentialUse from "./CredentialUse.ts"
import type { GitCredential } from "../../GitCredentials.ts"
import * as GitEnvironment from "./GitEnvironment.ts"
import { RelayFailed } from "../../GitRelayError.ts"

export interface HostGitCommand extends GitEnvironment.GitCommand {
  readonly credential?: GitCredential | undefined
  readonly runtimeSecondsMax: number
  /** What is said on stdout; more is a failure. */
  readonly stdoutBytesMax?: number | undefined
  /** Of what it does, as it does it. */
  readonly onProgress?: ((text: string) => void) | undefined
}

export interface GitAnswer {
  readonly exitCode: number
  readonly stdout: Buffer
  /** The end of it. */
  readonly stderr: string
}

export interface RunningGit {
  readonly stdin: Writable
  readonly child: ChildProcess
  /** Settles when it has ended and all it wrote is read. */
  readonly answer: Effect.Effect<GitAnswer, RelayFailed>
}

const stderrBytesMax = 16 * 1024
const stdoutBytesMaxDefault = 16 * 1024 * 1024

/** Started now, and killed with the scope if it still lives. `onStdout` takes what it writes in place of the answer. */
export const start = (
  command: HostGitCommand,
  onStdout?: (piece: Buffer) => void
): Effect.Effect<RunningGit, RelayFailed, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => launch(command, onStdout)),
    ({ child }) => Effect.sync(() => killGroup(child))
  )

/** To its end, with nothing on stdin unless `input` is given. */
export const run = (
  command: HostGitCommand,
  input?: string | Uint8Array
): Effect.Effect<GitAnswer, RelayFailed> =>
  Effect.scoped(
    Effect.flatMap(start(command), ({ answer, stdin }) => {
      stdin.end(input ?? "")
      return answer
    })
  )

/** `run`, where anything but 0 is nobody's input but a fault of the relay's. */
export const runOk = (
  command: HostGitCommand,
  input?: string | Uint8Array
): Effect.Effect<Buffer, RelayFailed> =>
  Effect.flatMap(run(command, input), ({ exitCode, stderr, stdout }) =>
    exitCode === 0
      ? Effect.succeed(stdout)
      : Effect.fail(
          new RelayFailed({
            detail: `git ${command.argv[0]} ended with ${exitCode}: ${lastLine(stderr)}`,
            remedy: "Look at the disk of the relay's directory, then try again",
            isRetryable: false
          })
        )
  )

/** Owner of a tree that the host made, before any agent saw it; links are not followed. */
export const giveTo = (
  path: string,
  user: { readonly userId: number; readonly groupId: number }
): Effect.Effect<void, RelayFailed> => program("chown", ["-Rh", `${user.userId}:${user.groupId}`, "--", path])

/** Remove a tree that an agent could write, whatever it did to keep it. Both programs never follow a link. */
export const removeTree = (path: string): Effect.Effect<void, RelayFailed> =>
  program("rm", ["-rf", "--one-file-system", "--", path]).pipe(
    Effect.catch(() =>
      Effect.andThen(
        Effect.ignore(program("chmod", ["-R", "u+rwX", "--", path])),
        program("rm", ["-rf", "--one-file-system", "--", path])
      )
    )
  )

const programSecondsMax = 120

const program = (name: string, argv: ReadonlyArray<string>): Effect.Effect<void, RelayFailed> =>
  Effect.tryPromise({
    try: () =>
      promisify(execFile)(name, [...argv], {
        cwd: "/",
        env: { PATH: GitEnvironment.searchPath, LC_ALL: "C" },
        timeout: programSecondsMax * 1000
      }),
    catch: (thrown) =>
      new RelayFailed({
        detail: `${name} failed: ${thrown instanceof Error ? lastLine(thrown.message) : String(thrown)}`,
        remedy: "Look at the disk of the relay's directory and its permissions",
        isRetryable: false
      })
  })

const lastLine = (text: string): string =>
  text
    .trimEnd()
    .split(/[\r\n]/u)
    .at(-1) ?? ""

const killGroup = (child: ChildProcess): void => {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  try {
    process.kill(-child.pid, "SIGKILL")
  } catch {
    // It has just ended.
  }
}

const launch = (command: HostGitCommand, onStdout: ((piece: Buffer) => void) | undefined): RunningGit => {
  const { credential } = command
  const child = spawn("git", [...GitEnvironment.argumentsOf(command)], {
    cwd: "/",
    detached: true,
    env: { ...GitEnvironment.environmentOf(command) },
    stdio: ["pipe", "pipe", "pipe", credential === undefined ? "ignore" : "pipe"]
  })
  const [stdin, stdout, stderr, descriptor3] = child.stdio
  // A reader that is gone is told by the exit.
  for (const stream of child.stdio) stream?.on("error", () => undefined)
  if (credential !== undefined) (descriptor3 as Writable).end(CredentialUse.pipeText(credential))
  const heard = listen(child, command, onStdout)
  stdout!.on("data", heard.stdout)
  stderr!.on("data", heard.stderr)
  const answer = Effect.callback<GitAnswer, RelayFailed>((resume) => heard.settled(resume))
  return { child, stdin: stdin as Writable, answer }
}

type Settle = (result: Effect.Effect<GitAnswer, RelayFailed>) => void

const listen = (
  child: ChildProcess,
  command: HostGitCommand,
  onStdout: ((piece: Buffer) => void) | undefined
) => {
  const pieces: Array<Buffer> = []
  const waiting: Array<Settle> = []
  let bytes = 0
  let said = ""
  let result: Effect.Effect<GitAnswer, RelayFailed> | undefined
  const settle: Settle = (how) => {
    if (result !== undefined) return
    result = how
    clearTimeout(late)
    for (const resume of waiting) resume(how)
  }
  const fail = (detail: string, remedy: string, isRetryable: boolean) => {
    settle(Effect.fail(new RelayFailed({ detail: `git ${command.argv[0]} ${detail}`, remedy, isRetryable })))
    killGroup(child)
  }
  const { runtimeSecondsMax, stdoutBytesMax = stdoutBytesMaxDefault } = command
  const late = setTimeout(
    () => fail(`took more than ${runtimeSecondsMax} s`, "Try again, or allow it more time", true),
    runtimeSecondsMax * 1000
  )
  child.once("error", () =>
    fail("cannot be started", `Install git, so that it is found in ${GitEnvironment.searchPath}`, false)
  )
  // What it has started, such as git-remote-https, ends with it.
  child.once("exit", () => {
    if (child.pid !== undefined) killQuietly(child.pid)
  })
  child.once("close", (code) => {
    settle(Effect.succeed({ exitCode: code ?? -1, stdout: Buffer.concat(pieces), stderr: said }))
  })
  return {
    stdout: (piece: Buffer) => {
      if (onStdout !== undefined) return onStdout(piece)
      bytes += piece.byteLength
      if (bytes > stdoutBytesMax)
        fail(`wrote more than ${stdoutBytesMax} bytes`, "Narrow what is asked", false)
      else pieces.push(piece)
    },
    stderr: (piece: Buffer) => {
      const text = piece.toString("utf8")
      said = (said + text).slice(-stderrBytesMax)
      const line = text.split(/[\r\n]/u).findLast((part) => part.trim() !== "")
      if (line !== undefined) command.onProgress?.(line)
    },
    settled: (resume: Settle) => {
      if (result === undefined) waiting.push(resume)
      else resume(result)
    }
  }
}

/** Grandchildren in the group, such as `git-remote-https`, once git itself is gone. */
const killQuietly = (processId: number): void => {
  try {
    process.kill(-processId, "SIGKILL")
  } catch {
    // There is no such group any more.
  }
}
