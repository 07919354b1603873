/**
 * Which agents there are.
 *
 * Discovery only: nothing here starts anything, and listing agents needs no engine. The embedding application may
 * have agents of its own: `layer([...builtIn, mine])`.
 */
import { Context, Effect, Layer, Schema } from "effect"
import type { Agent } from "./Agent.ts"
import { claudeCode } from "./ClaudeCode.ts"
import { codex } from "./Codex.ts"
import { minimal } from "./Minimal.ts"
import { openClaw } from "./OpenClaw.ts"
import { openCode } from "./OpenCode.ts"
import { pi } from "./Pi.ts"

/** Every agent this package ships. **Add a new agent here.** */
export const builtIn: ReadonlyArray<Agent> = [minimal, claudeCode, codex, openClaw, openCode, pi]

export class AgentNotFound extends Schema.TaggedError<AgentNotFound>()("AgentNotFound", {
  agentId: Schema.String,
  known: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `there is no agent ${this.agentId}. There is: ${this.known.join(", ")}`
  }
}

export class AgentRegistry extends Context.Service<
  AgentRegistry,
  {
    readonly get: (agentId: string) => Effect.Effect<Agent, AgentNotFound>
    /** By name. */
    readonly list: ReadonlyArray<Agent>
  }
>()("@cogni/sandbox-graph-provider/AgentRegistry") {}

/** Of two agents with one id, the last is meant. */
export const make = (agents: ReadonlyArray<Agent>): AgentRegistry["Service"] => {
  const byId = new Map<string, Agent>(agents.map((agent) => [agent.id, agent]))
  const list = [...byId.values()].toSorted((a, b) => a.name.localeCompare(b.name, "en"))
  return AgentRegistry.of({
    get: (agentId) =>
      Effect.mapError(
        Effect.fromNullishOr(byId.get(agentId)),
        () => new AgentNotFound({ agentId, known: list.map(({ id }) => id) })
      ),
    list
  })
}

export const layer = (agents: ReadonlyArray<Agent> = builtIn): Layer.Layer<AgentRegistry> =>
  Layer.sync(AgentRegistry, () => make(agents))
