/**
 * Registry of the available agents.
 *
 * Discovery only: nothing here starts anything, and listing agents needs no engine. The embedding application can add
 * its own agents: `layer([...builtIn, mine])`.
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
    return `there is no agent ${this.agentId}. Available agents: ${this.known.join(", ")}`
  }
}

export class AgentRegistry extends Context.Service<
  AgentRegistry,
  {
    readonly get: (agentId: string) => Effect.Effect<Agent, AgentNotFound>
    /** Sorted by name. */
    readonly list: ReadonlyArray<Agent>
  }
>()("@cogni/sandbox-graph-provider/AgentRegistry") {}

/** Creates a registry. If two agents have the same ID, the last one counts. */
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
