/** Time limits of agents. */
import { Limits } from "@cogni/sandbox-core/SpecFields"
import { Schema } from "effect"
import type { Agent } from "../agents/Agent.ts"

const { runtimeSecondsMax: defaultRuntimeSecondsMax } = Schema.decodeSync(Limits)({})

/** Returns the time limit of an agent: the requested one, else the agent's, else the default of all runs. */
export const runtimeSecondsOf = (agent: Agent, asked: number | undefined): number =>
  asked ?? agent.limits.runtimeSecondsMax ?? defaultRuntimeSecondsMax
