/**
 * The deadline that a container keeps itself, in case its host process was killed or hangs. Pure.
 *
 * `cogni-init` is the first process of every container that runs untrusted code or reads untrusted data. It ends the
 * container at the deadline, and as soon as its standard input ends, which happens when the host process dies. The
 * host's own time limit comes first, so a container that reaches its deadline had a host that did not act.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { supervisor } from "@cogni/sandbox-core/SpecFields"

type Timed = Pick<ContainerSpec, "limits">

/** First process of the containers of agents and relays. */
const init = "/usr/local/bin/cogni-init"

/** Program that `cogni-init` starts in the container of an agent. */
const entrypoint = "/usr/local/bin/cogni-entrypoint"

/** Exit code of a container that has reached its deadline. An agent can exit with it too. */
export const exitCode = 98

/** Program that `cogni-init` starts in a sandbox that waits for a run. */
const waiter = "/usr/local/bin/cogni-waiter"

/** How long a container can be held before its agent starts. The host gives each step of a start 120 s. */
const heldSecondsMax = 150

/** Time for the host to end a container before the container ends itself. */
export const slackSeconds = 5

/**
 * Seconds that a proxy may run before and after its agent: it starts before the agent is created. This matters only if
 * its host process hangs. If that process dies, the proxy's input ends.
 */
const proxySecondsMore = 300

/** Seconds from a container's start of work to its deadline. */
export const secondsMax = ({ limits }: Timed): number =>
  Math.ceil(limits.runtimeSecondsMax + (limits.stopGraceSecondsMax ?? 0)) + slackSeconds

/** Returns what a container executes, so that it keeps its deadline. */
export const program = (
  spec: ContainerSpec
): {
  readonly entrypoint?: ReadonlyArray<string>
  readonly argv: ReadonlyArray<string>
  readonly workingDirectory?: string
} => {
  const seconds = String(secondsMax(spec))
  switch (spec.role) {
    case "agent":
      return {
        entrypoint: [init, String(heldSecondsMax), seconds, entrypoint],
        argv: spec.argv,
        workingDirectory: SandboxPlace.target
      }
    case "relay":
      // Not in the workspace: files that an agent left must not affect the start.
      return { entrypoint: [init, "0", seconds], argv: spec.argv, workingDirectory: "/" }
    default:
      return { argv: spec.argv }
  }
}

/**
 * Returns what a sandbox that waits for a run executes. It ends itself if no run has got it in time. The time limit of
 * a run comes with that run, and without it the run would end at once.
 */
export const waitingProgram = (
  { preload, supervised }: Pick<ContainerSpec, "preload" | "supervised">,
  waitSecondsMax: number
): ReturnType<typeof program> => ({
  entrypoint: [init, String(Math.ceil(waitSecondsMax) + heldSecondsMax), "0", waiter],
  // To load a program, it starts nothing that the program could change before that is stopped.
  argv: supervised === true ? [supervisor] : preload === undefined ? [] : ["load"],
  workingDirectory: SandboxPlace.target
})

/** Returns the variables that tell a proxy its deadline, and the size of its configuration on standard input. */
export const environment = ({
  limits,
  role,
  stdin = ""
}: Pick<ContainerSpec, "limits" | "role" | "stdin">): ReadonlyArray<string> =>
  role === "proxy"
    ? [
        `COGNI_CONFIG_BYTES=${Buffer.byteLength(stdin)}`,
        `COGNI_DEADLINE_SECONDS=${secondsMax({ limits }) + proxySecondsMore}`
      ]
    : []

/**
 * Returns whether a container ended at its deadline, by the engine's clock. An agent that exits with the same code does
 * so earlier. `sinceMillis` is the start of its run, if that is not the start of the container.
 */
export const hasPassed = (
  state: {
    readonly ExitCode: number
    readonly StartedAt?: string | undefined
    readonly FinishedAt?: string | undefined
  },
  spec: Timed,
  sinceMillis?: number
): boolean =>
  state.ExitCode === exitCode &&
  Date.parse(state.FinishedAt ?? "") - (sinceMillis ?? Date.parse(state.StartedAt ?? "")) >=
    spec.limits.runtimeSecondsMax * 1000
