/** What a catalog shows: every graph once, by name, and without anything being run. */
import * as AgentCatalog from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"

const entry = (id: string, name: string): AgentCatalog.AgentDescriptor => {
  const graphId = GraphId.make(id)
  return { agentId: graphId, graphId, name, description: null }
}

describe("AgentCatalog", () => {
  it.effect("of two with one id the first is shown; all by name, and then by id", () =>
    Effect.gen(function* () {
      const { list } = AgentCatalog.make([
        Effect.succeed([entry("b:x", "Zoe"), entry("b:b", "Ann")]),
        Effect.succeed([entry("a:a", "Ann"), entry("b:x", "Other")])
      ])
      assert.deepStrictEqual(
        (yield* list).map(({ agentId, name }) => [agentId, name]),
        [
          ["a:a", "Ann"],
          ["b:b", "Ann"],
          ["b:x", "Zoe"]
        ]
      )
    })
  )

  it.effect("every agent of the registry is in it, as its schema says, with what it can do", () =>
    Effect.gen(function* () {
      const list = yield* AgentCatalog.AgentCatalog.use((catalog) => catalog.list)
      assert.sameMembers(
        list.map(({ graphId }) => graphId as string),
        AgentRegistry.builtIn.map(({ id }) => `sandbox:${id}`)
      )
      for (const one of list) assert.isTrue(Schema.is(AgentCatalog.AgentDescriptor)(one))
      assert.isTrue(list.every(({ capabilities }) => capabilities !== undefined))
    }).pipe(Effect.provide(Layer.provide(AgentCatalog.layer(), AgentRegistry.layer())))
  )
})
