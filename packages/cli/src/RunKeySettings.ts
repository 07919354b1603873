/** Settings of keys for runs: whether LiteLLM issues one for each run, and the name of this deployment. */
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Schema } from "effect"

/**
 * `required`: a run without a key of its own is refused. `preferred`: it uses the configured key instead, with a
 * warning.
 */
export const Mode = Schema.Literals(["off", "required", "preferred"])

export interface RunKeySettings {
  readonly mode: typeof Mode.Type
  /** Name in the alias of each key. The same for all hosts of a deployment, or one for each host. */
  readonly deployment: string
}

const nameMax = 40

/** Returns the host's name as the name of a deployment. */
export const nameOf = (hostName: string): string => {
  const name = hostName
    .toLowerCase()
    .replace(/[^a-z0-9]+/gu, "-")
    .replace(/^-+/u, "")
    .slice(0, nameMax)
  return name === "" ? "local" : name
}

export const make = (found: {
  readonly mode: typeof Mode.Type | undefined
  readonly deployment: string | undefined
}): RunKeySettings => ({
  mode: found.mode ?? "off",
  deployment: found.deployment ?? nameOf(HostOwner.machineName())
})
