/**
 * Subagents of real agents, held to their share by the gateway. The agents mark the calls of their subagents; the model
 * is a script in which a subagent never comes to an end by itself.
 */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { AgentRow } from "../harness/agentTasks/AgentRow.ts"
import * as AgentWorld from "../harness/agentTasks/AgentWorld.ts"
import * as ClaudeCode from "../harness/agentTasks/ClaudeCode.ts"
import * as OpenCode from "../harness/agentTasks/OpenCode.ts"
import * as Engine from "../harness/Engine.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import type * as ScriptedModel from "../harness/ScriptedModel.ts"

const task = "Look around for ever. TASK OF A SUBAGENT"

interface Delegation {
  readonly row: AgentRow
  readonly tool: string
  readonly kind: string
  /** A tool that only the main agent has. */
  readonly ofMain: string
  /** Calls of the main agent. Claude Code asks its model once more while a subagent works. */
  readonly mainCalls: number
}

const delegations: ReadonlyArray<Delegation> = [
  { row: ClaudeCode.row, tool: "Agent", kind: "general-purpose", ofMain: "ListAgents", mainCalls: 3 },
  { row: OpenCode.row, tool: "task", kind: "general", ofMain: "task", mainCalls: 2 }
]

/** The main agent delegates once. Its subagent never ends by itself. */
const scriptOf = ({ kind, ofMain, row, tool }: Delegation) => {
  const seen = { main: 0, sub: 0 }
  const script: ScriptedModel.Script = ({ tools }) => {
    if (!tools.includes(ofMain)) {
      seen.sub += 1
      return { call: [row.shell("echo looking")] }
    }
    seen.main += 1
    return seen.main === 1
      ? { call: [{ name: tool, args: { description: "look", prompt: task, subagent_type: kind } }] }
      : { say: "Done." }
  }
  return { script, seen }
}

layer(Layer.merge(Engine.api(), RunHarness.Directory.layer), { excludeTestServices: true })(
  "subagents",
  (it) => {
    for (const delegation of delegations) {
      const { mainCalls, row } = delegation
      it.effect(
        `${row.agent.name} answers with the rest of its budget when its subagents have spent their share`,
        () =>
          Effect.gen(function* () {
            const path = yield* AgentWorld.workspace()
            const { script, seen } = scriptOf(delegation)
            const { final, upstream } = yield* AgentWorld.work(row.agent, script, path, {
              messages: [{ role: "user", content: "Delegate it." }],
              model: "scripted",
              budget: { callsMax: 20, subagentShareMax: 0.15, onExhausted: "refuse" }
            })
            assert.isTrue(final.ok, JSON.stringify([final, yield* upstream.problems]))
            assert.deepStrictEqual(seen, { main: mainCalls, sub: 3 })
            assert.strictEqual(final.content, "Done.")
            const names = (yield* upstream.received).flatMap(({ headers }) => headers.map(([name]) => name))
            assert.isFalse(names.some((name) => /agent-id|parent-session/iu.test(name)))
          }).pipe(Effect.scoped)
      )
    }
  }
)
