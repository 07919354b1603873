/**
 * Runs git on the host, in repositories that the host created: the environment is built from nothing, and the
 * credential goes over a pipe.
 */
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import { Effect, type Scope } from "effect"
import * as CredentialUse from "./CredentialUse.ts"
import type { GitCredential } from "../../GitCredentials.ts"
import * as GitEnvironment from "./GitEnvironment.ts"
import { RelayFailed } from "../../GitRelayError.ts"

export interface HostGitCommand extends GitEnvironment.GitCommand {
  readonly credential?: GitCredential | undefined
  /** Time limit in seconds (default 300), for commands that contact another machine or take long. */
  readonly runtimeSecondsMax?: number | undefined
  /** Maximum bytes of stdout; more is a failure. */
  readonly stdoutBytesMax?: number | undefined
  /** Receives progress lines while git runs. */
  readonly onProgress?: ((text: string) => void) | undefined
}

export interface RunningGit extends Pick<HostProgram.RunningProgram, "stdin"> {
  /** Completes when git has ended and all its output is read. */
  readonly answer: Effect.Effect<HostProgram.ProgramAnswer, RelayFailed>
}

/**
 * Starts git, and kills it when the scope closes if it still runs. `onStdout` receives its output instead of the
 * answer.
 */
export const start = (
  command: HostGitCommand,
  onStdout?: (piece: Buffer) => void
): Effect.Effect<RunningGit, never, Scope.Scope> =>
  Effect.map(HostProgram.start({ ...programOf(command), onStdout }), ({ answer, stdin }) => ({
    stdin,
    answer: Effect.mapError(answer, failedFor(command))
  }))

/** Runs git to its end, with nothing on stdin unless `input` is given. */
export const run = (command: HostGitCommand, input?: string | Uint8Array) =>
  Effect.mapError(HostProgram.run(programOf(command), input), failedFor(command))

/**
 * Like `run`, but fails on a nonzero exit code. For commands whose failure is a fault of the relay, not of their input.
 */
export const runOk = (command: HostGitCommand, input?: string | Uint8Array) =>
  Effect.flatMap(run(command, input), ({ exitCode, stderr, stdout }) =>
    exitCode === 0
      ? Effect.succeed(stdout)
      : new RelayFailed({
          detail: `git ${command.argv[0]} ended with ${exitCode}: ${HostProgram.lastLine(stderr)}`,
          remedy: "Check the disk of the relay's directory, then try again"
        })
  )

/** Like `runOk`, but returns the lines of stdout that are not empty. */
export const lines = (command: HostGitCommand, input?: string) =>
  Effect.map(runOk(command, input), (stdout) =>
    stdout
      .toString("latin1")
      .split("\n")
      .filter((line) => line !== "")
  )

const programOf = (command: HostGitCommand): HostProgram.HostProgram => {
  const { credential, onProgress, runtimeSecondsMax = 300, stdoutBytesMax } = command
  return {
    name: "git",
    argv: GitEnvironment.argumentsOf(command),
    env: GitEnvironment.environmentOf(command),
    descriptor3: credential === undefined ? undefined : CredentialUse.pipeText(credential),
    runtimeSecondsMax,
    stdoutBytesMax,
    onStderr: (text) => {
      const line = progressIn(text)
      if (line !== undefined) onProgress?.(line)
    }
  }
}

/**
 * The newest progress in a piece of stderr: the last line with a percentage, or else the last line. On a busy host, one
 * piece has all lines of a small transfer, and the last ones say only which branches were read.
 */
export const progressIn = (text: string): string | undefined => {
  const lines = text.split(/[\r\n]/u).filter((line) => line.trim() !== "")
  return lines.findLast((line) => /\d%/u.test(line)) ?? lines.at(-1)
}

const remedies = {
  cannot_start: `Install git, so that it is found in ${HostProgram.searchPath}`,
  too_slow: "Try again, or allow it more time",
  too_much_output: "Request less output"
} satisfies Record<HostProgram.ProgramFailed["problem"], string>

const failedFor =
  ({ argv }: HostGitCommand) =>
  ({ detail, problem }: HostProgram.ProgramFailed) =>
    new RelayFailed({
      detail: detail.replace(/^git/u, `git ${argv[0]}`),
      remedy: remedies[problem],
      isRetryable: problem === "too_slow"
    })
