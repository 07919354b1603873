/** The catalog: every graph once, sorted by name, without running anything. */
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
  it.effect("lists the first of two entries with one ID, sorted by name and then by ID", () =>
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

  it.effect("lists every agent of the registry with its capabilities, as the schema requires", () =>
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
