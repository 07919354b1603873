/**
 * Runs git in a container, with fixed limits and environment, and streams its output.
 *
 * The container has no network, no credential and no socket. `cogni-git` reads neither the configuration nor the hooks
 * of a repository. If an agent's code ran there anyway, it would run as the agent's own user, with access to nothing
 * that the agent did not have. The container is the boundary.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import {
  type ContainerError,
  ContainerRuntime,
  type ContainerSpec
} from "@cogni/sandbox-core/ContainerRuntime"
import type { User } from "@cogni/sandbox-core/Posture"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Stream } from "effect"
import { RelayFailed } from "../../GitRelayError.ts"
import { oneLine } from "./ShownText.ts"

const MiB = 1024 * 1024

/** Resource limits of git in a container. */
export const limits = {
  memoryBytesMax: 1024 * MiB,
  processesMax: 64,
  cpusMax: 2,
  temporaryBytesMax: 64 * MiB,
  filesOpenMax: 1024
} as const

export const environment: Readonly<Record<string, string>> = {
  GIT_ATTR_NOSYSTEM: "1",
  GIT_CONFIG_COUNT: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_KEY_0: "safe.directory",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_VALUE_0: "*",
  GIT_NO_LAZY_FETCH: "1",
  GIT_NO_REPLACE_OBJECTS: "1",
  GIT_TERMINAL_PROMPT: "0",
  HOME: "/nonexistent",
  LC_ALL: "C",
  PATH: "/usr/local/bin:/usr/bin:/bin"
}

/** Program in the runtime image that opens repositories that may be hostile. */
export const program = "/usr/local/bin/cogni-git"

/** Exit codes of `cogni-git`. */
export const exitCodes = { unfit: 65, absent: 66, moved: 75, denied: 77 } as const

export interface ContainerRequest {
  readonly runId: RunId
  /** An image of this project, with git and `cogni-git`. Never one that an agent could change. */
  readonly image: string
  /** Never root. */
  readonly user: User
  readonly runtimeSecondsMax: number
}

/** Settings that all containers of a relay share: this environment, no network, and these limits. */
export const common = ({ image, runId, runtimeSecondsMax, user }: ContainerRequest) =>
  ({
    runId,
    role: "relay",
    image,
    user,
    env: environment,
    network: { mode: "none" },
    limits: { ...limits, workspaceBytesMax: 256 * MiB, runtimeSecondsMax }
  }) as const satisfies Partial<ContainerSpec>

/** Exit code of a container, and the beginning of its stderr as one line. */
export interface Ended {
  readonly exitCode: number
  readonly stderr: string
}

/** Output of a running container as it arrives, and how the container ended. */
export type RunningGit = Effect.Success<ReturnType<typeof start>>

const stderrBytesMax = 4096

/** Starts a container. It is removed when the scope closes, even if it is still running. */
export const start = Effect.fnUntraced(function* (spec: ContainerSpec) {
  const runtime = yield* ContainerRuntime
  const container = yield* Effect.mapError(runtime.acquire(spec), broken)
  yield* Effect.mapError(container.start, broken)
  let said = ""
  return {
    stdout: container.output.pipe(
      Stream.mapError(broken),
      Stream.tap((chunk) =>
        Effect.sync(() => {
          if (chunk.channel === "stderr" && said.length < stderrBytesMax)
            said += Buffer.from(chunk.bytes).toString("utf8")
        })
      ),
      Stream.filter(({ channel }) => channel === "stdout"),
      Stream.map(({ bytes }) => bytes)
    ),
    /** Completes after `stdout` has ended. */
    ended: Effect.map(Effect.mapError(container.exit, broken), ({ exitCode }): Ended => ({
      exitCode,
      stderr: oneLine(said)
    }))
  }
})

/** Runs a container to its end, and keeps only the beginning of its stdout. */
export const run = (spec: ContainerSpec, stdoutBytesMax = 0) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { ended, stdout } = yield* start(spec)
      const said = yield* Stream.runFold(
        stdout,
        () => "",
        (text, piece) => (text.length < stdoutBytesMax ? text + Buffer.from(piece).toString("latin1") : text)
      )
      return { ...(yield* ended), said: said.slice(0, stdoutBytesMax) }
    })
  )

const broken = (error: ContainerError | PostureMismatch): RelayFailed =>
  new RelayFailed({
    detail: `the container that opens the repository failed: ${error.message}`,
    remedy: `Try again (${named("GitRelay.reopen")})`,
    isRetryable: true
  })
