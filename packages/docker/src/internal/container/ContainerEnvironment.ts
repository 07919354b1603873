/**
 * The variables a container starts with. Pure.
 *
 * What a caller sets for an agent is in nobody's environment but the agent's: not in that of the engine's init, of the
 * entrypoint and what it starts, of the supervisor, or of the program that reads files for the host. Perl, the C
 * library and many others run or load what a variable names, and these programs speak for the sandbox.
 *
 * So a caller's variables come as `COGNI_ENV_<n>=NAME=VALUE`, which no program reads, and the entrypoint gives each its
 * own name when it becomes the agent. In an open sandbox they do not come at all: each command is sent its own.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"

type Named = Pick<ContainerSpec, "env" | "role" | "supervised">

/** What the entrypoint reads; it is gone before the agent starts. */
const isEntrypoints = (name: string): boolean => name === "COGNI_SOCKET"

/** What the caller has set, by its own names. */
export const ofAgent = ({ env }: Pick<Named, "env">): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !isEntrypoints(name)))

/** As the engine takes it: `NAME=VALUE`. */
export const ofContainer = (spec: Named): ReadonlyArray<string> => {
  if (spec.role !== "agent") return Object.entries(spec.env).map(([name, value]) => `${name}=${value}`)
  const carried = spec.supervised === true ? [] : Object.entries(ofAgent(spec))
  return [
    "HOME=/home/agent",
    ...Object.entries(spec.env)
      .filter(([name]) => isEntrypoints(name))
      .map(([name, value]) => `${name}=${value}`),
    "COGNI_HOLD=1",
    ...(carried.length === 0 ? [] : [`COGNI_ENV=${carried.length}`]),
    ...carried.map(([name, value], index) => `COGNI_ENV_${index}=${name}=${value}`)
  ]
}
