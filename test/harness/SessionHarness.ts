/**
 * Sessions over real Docker: a manager of their sandboxes, with temporary or persistent workspaces, in a state
 * directory that is removed after the test, with a check for leaks.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import * as DockerSandbox from "@cogni/sandbox-sessions/sandbox/DockerSandbox"
import * as HostSessionWorkspaces from "@cogni/sandbox-sessions/sandbox/HostSessionWorkspaces"
import * as SandboxManager from "@cogni/sandbox-sessions/sandbox/SandboxManager"
import * as SessionWorkspaces from "@cogni/sandbox-sessions/sandbox/SessionWorkspaces"
import { Duration, Effect, Layer, Schedule, type Scope } from "effect"
import { join } from "node:path"
import { docker } from "./Docker.ts"
import * as Images from "./Images.ts"
import * as Pace from "./Pace.ts"
import * as RunHarness from "./RunHarness.ts"

const MiB = 1024 ** 2

/** Limits that suffice for a shell and some programs, and allow many sandboxes at once. */
export const settings: DockerSandbox.SandboxSettings = {
  image: Images.runtime,
  limits: { memoryBytesMax: 128 * MiB, processesMax: 64, runtimeSecondsMax: 300, stopGraceSecondsMax: 1 }
}

export type Limits = NonNullable<DockerSandbox.SandboxSettings["limits"]>

/** The same settings with other limits. */
export const settingsWith = (limits: Limits): DockerSandbox.SandboxSettings => ({
  ...settings,
  limits: { ...settings.limits, ...limits }
})

/** Directory of persistent workspaces. */
export const workspacesOf = (directory: string) => join(directory, "sessions")

type Options = Partial<SandboxManager.ManagerOptions> & { readonly keeps?: boolean }

/** Makes a manager over the services of `RunHarness.layer`. It ends with the scope. */
export const manager = ({ keeps = false, ...options }: Options = {}): Effect.Effect<
  SandboxManager.SandboxManager["Service"],
  never,
  RunHarness.Directory | SandboxRunner | Scope.Scope
> =>
  Effect.gen(function* () {
    const directory = yield* RunHarness.Directory
    const workspaces = keeps
      ? HostSessionWorkspaces.layer({ directory: workspacesOf(directory) })
      : SessionWorkspaces.layerTemporary
    return yield* SandboxManager.make({ settings, ...options }).pipe(
      Effect.provide(Layer.merge(DockerSandbox.layer, workspaces))
    )
  })

/** Runs a shell line and returns its stdout, followed by a nonzero exit code and stderr. */
export const said = (
  sandbox: Pick<DockerSandbox.SessionSandbox, "exec">,
  line: string,
  options?: Parameters<DockerSandbox.SessionSandbox["exec"]>[1]
): Effect.Effect<string, SandboxError> =>
  Effect.map(sandbox.exec(line, options), ({ exitCode, output }) =>
    [output.stdout.text.trim(), exitCode === 0 ? "" : `(${exitCode}) ${output.stderr.text}`.trim()]
      .filter((part) => part !== "")
      .join(" ")
  )

/** Name of a session's container on the engine. */
export const containerOf = (runId: RunId) => `cogni-${runId}-agent`

/** Lists the names of these runs' containers on the engine, running or not. */
export const containers = (...runIds: ReadonlyArray<RunId>) =>
  Effect.map(docker("ps", "--all", "--no-trunc", "--format", "{{.Names}}"), (names) =>
    names.split("\n").filter((name) => runIds.some((runId) => name.startsWith(`cogni-${runId}-`)))
  )

/** Repeats a check until it succeeds, for at most this many seconds of a quiet machine. */
export const eventually = <E, R>(what: string, holds: Effect.Effect<boolean, E, R>, seconds = 10) =>
  Effect.suspend(() => {
    const before = performance.now()
    const isLate = () => performance.now() - before > Pace.allowed(seconds * 1000)
    return holds.pipe(
      Effect.repeat({ schedule: Schedule.spaced("20 millis"), until: (held) => held || isLate() }),
      Effect.filterOrElse(Boolean, () => Effect.die(new Error(`${what}: not within ${seconds} s`))),
      Effect.asVoid
    )
  })

/**
 * Runs an effect that may take this many seconds of a quiet machine. Returns how many milliseconds of a quiet machine
 * it took. Interrupts a hang.
 */
export const within = <A, E, R>(seconds: number, effect: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const before = performance.now()
    return effect.pipe(
      Effect.timeoutOrElse({
        duration: Duration.millis(Pace.hangMillis / 2),
        orElse: () => Effect.die(new Error(`still waiting after ${Pace.hangMillis / 2000} s`))
      }),
      Effect.map((value) => ({ value, millis: (performance.now() - before) / Pace.slowdown() })),
      Effect.tap(({ millis }) =>
        millis <= seconds * 1000
          ? Effect.void
          : Effect.die(
              new Error(`took ${Math.round(millis)} ms of a quiet machine, not at most ${seconds} s`)
            )
      )
    )
  })
