/** Git on the host, on repositories that the host made: its environment from nothing, its credential over a pipe. */
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import { Effect, type Scope } from "effect"
import * as CredentialUse from "./CredentialUse.ts"
import type { GitCredential } from "../../GitCredentials.ts"
import * as GitEnvironment from "./GitEnvironment.ts"
import { RelayFailed } from "../../GitRelayError.ts"

export interface HostGitCommand extends GitEnvironment.GitCommand {
  readonly credential?: GitCredential | undefined
  /** For what more than this machine takes part in, or what is long; 300. */
  readonly runtimeSecondsMax?: number | undefined
  /** What is said on stdout; more is a failure. */
  readonly stdoutBytesMax?: number | undefined
  /** Of what it does, as it does it. */
  readonly onProgress?: ((text: string) => void) | undefined
}

export interface RunningGit extends Pick<HostProgram.RunningProgram, "stdin"> {
  /** Settles when it has ended and all it wrote is read. */
  readonly answer: Effect.Effect<HostProgram.ProgramAnswer, RelayFailed>
}

/** Started now, and killed with the scope if it still lives. `onStdout` takes what it writes in place of the answer. */
export const start = (
  command: HostGitCommand,
  onStdout?: (piece: Buffer) => void
): Effect.Effect<RunningGit, never, Scope.Scope> =>
  Effect.map(HostProgram.start({ ...programOf(command), onStdout }), ({ answer, stdin }) => ({
    stdin,
    answer: Effect.mapError(answer, failedFor(command))
  }))

/** To its end, with nothing on stdin unless `input` is given. */
export const run = (command: HostGitCommand, input?: string | Uint8Array) =>
  Effect.mapError(HostProgram.run(programOf(command), input), failedFor(command))

/** `run`, where anything but 0 is nobody's input but a fault of the relay's. */
export const runOk = (command: HostGitCommand, input?: string | Uint8Array) =>
  Effect.flatMap(run(command, input), ({ exitCode, stderr, stdout }) =>
    exitCode === 0
      ? Effect.succeed(stdout)
      : new RelayFailed({
          detail: `git ${command.argv[0]} ended with ${exitCode}: ${HostProgram.lastLine(stderr)}`,
          remedy: "Look at the disk of the relay's directory, then try again"
        })
  )

/** `runOk`, as its lines. */
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
      const line = text.split(/[\r\n]/u).findLast((part) => part.trim() !== "")
      if (line !== undefined) onProgress?.(line)
    }
  }
}

const remedies = {
  cannot_start: `Install git, so that it is found in ${HostProgram.searchPath}`,
  too_slow: "Try again, or allow it more time",
  too_much_output: "Narrow what is asked"
} satisfies Record<HostProgram.ProgramFailed["problem"], string>

const failedFor =
  ({ argv }: HostGitCommand) =>
  ({ detail, problem }: HostProgram.ProgramFailed) =>
    new RelayFailed({
      detail: detail.replace(/^git/u, `git ${argv[0]}`),
      remedy: remedies[problem],
      isRetryable: problem === "too_slow"
    })
