/**
 * The environment variables a container starts with. Pure.
 *
 * The variables that a caller sets for an agent are only in the environment of the agent: not in that of the engine's
 * init, the entrypoint and its children, the supervisor, or the program that reads files for the host. Perl, the C
 * library and many others execute or load files that a variable names, and the host trusts these programs.
 *
 * A caller's variables are passed as `COGNI_ENV_<n>=NAME=VALUE`, names that no program reads. The entrypoint restores
 * the real names when it becomes the agent. An open sandbox gets none of them: each command is sent its own.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { socketPath } from "@cogni/sandbox-core/SandboxPlace"

type Named = Pick<ContainerSpec, "env" | "role" | "supervised">

/** Returns whether a variable is for the entrypoint, which unsets it before the agent starts. */
const isEntrypoints = (name: string): boolean => name === "COGNI_SOCKET"

/** Returns the variables that the caller set, under their real names. */
export const ofAgent = ({ env }: Pick<Named, "env">): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !isEntrypoints(name)))

/** Returns the variables of the container in the format of the engine: `NAME=VALUE`. */
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

/** The variables of every sandbox that waits for a run, whatever the run will have. */
export const ofWaiting: ReadonlyArray<string> = ["HOME=/home/agent", `COGNI_SOCKET=${socketPath}`]

/** Whether the caller's container has a socket. */
export const hasSocket = ({ env }: Pick<Named, "env">): boolean => Object.keys(env).some(isEntrypoints)
