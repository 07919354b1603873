/** Finding and listing agents, ours and an application's own. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { AgentDescription, AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import { defaultImage } from "@cogni/sandbox-graph-provider/agents/AgentParts"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"

describe("AgentRegistry", () => {
  it("has built-in agents that match their schema, each with a unique ID", () => {
    for (const agent of AgentRegistry.builtIn) assert.isTrue(Schema.is(AgentDescription)(agent), agent.id)
    const ids = AgentRegistry.builtIn.map(({ id }) => id)
    assert.strictEqual(new Set(ids).size, ids.length)
  })

  it.each([
    ["codex", "cogni-sandbox/codex:latest"],
    ["acme/agent", "acme/agent"],
    ["agent:2", "agent:2"],
    ["localhost:5000/team/agent_x:1.2", "localhost:5000/team/agent_x:1.2"],
    [`registry.example.com/agent@sha256:${"a".repeat(64)}`, undefined]
  ])("accepts %s as the image of an agent", (image, expected = image) => {
    assert.isTrue(Schema.is(AgentDescription.fields.image)(image))
    assert.strictEqual(defaultImage(image), expected)
  })

  it.each(["", "-agent", "Agent", "an agent", "agent\n"])("refuses %j as the image of an agent", (image) => {
    assert.isFalse(Schema.is(AgentDescription.fields.image)(image))
  })

  it.effect("finds an agent by its ID", () =>
    Effect.gen(function* () {
      const registry = yield* AgentRegistry.AgentRegistry
      assert.strictEqual(yield* registry.get("agent"), minimal)
    }).pipe(Effect.provide(AgentRegistry.layer()))
  )

  it.effect("names the available agents if an agent does not exist", () =>
    Effect.gen(function* () {
      const registry = yield* AgentRegistry.AgentRegistry
      const error = yield* Effect.flip(registry.get("nobody"))
      const known = registry.list.map(({ id }) => id).join(", ")
      assert.strictEqual(error.message, `there is no agent nobody. Available agents: ${known}`)
      assert.include(known, minimal.id)
    }).pipe(Effect.provide(AgentRegistry.layer()))
  )

  it("sorts agents by name, and lets an application add and replace them", () => {
    const other = { ...minimal, id: AgentId.make("other"), name: "An other" }
    const replaced = { ...minimal, name: "Zed" }
    const { list } = AgentRegistry.make([minimal, other, replaced])
    assert.deepStrictEqual(
      list.map(({ name }) => name),
      ["An other", "Zed"]
    )
  })
})
