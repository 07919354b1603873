/**
 * Which graphs a person could choose, for catalogs and menus.
 *
 * Discovery has no part in execution: listing needs no engine, and an entry here opens nothing.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { Capabilities, ModelApi } from "../agents/Agent.ts"
import { AgentRegistry } from "../agents/AgentRegistry.ts"
import { GraphId, sandboxNamespace } from "./GraphId.ts"

/** One entry of a catalog. */
export const AgentDescriptor = Schema.Struct({
  /** The same as `graphId`. */
  agentId: GraphId,
  graphId: GraphId,
  name: Schema.String,
  description: Schema.NullOr(Schema.String),
  modelApi: Schema.optionalKey(ModelApi),
  capabilities: Schema.optionalKey(Capabilities)
})

export type AgentDescriptor = typeof AgentDescriptor.Type

/** Whoever knows of graphs. */
export type CatalogProvider = Effect.Effect<ReadonlyArray<AgentDescriptor>>

export class AgentCatalog extends Context.Service<
  AgentCatalog,
  {
    /** By name; of two with one id, the first. */
    readonly list: Effect.Effect<ReadonlyArray<AgentDescriptor>>
  }
>()("@cogni/sandbox-graph-provider/AgentCatalog") {}

export const make = (providers: ReadonlyArray<CatalogProvider>): AgentCatalog["Service"] =>
  AgentCatalog.of({
    list: Effect.map(Effect.all(providers, { concurrency: "unbounded" }), (lists) => {
      const byId = new Map<string, AgentDescriptor>()
      for (const entry of lists.flat()) if (!byId.has(entry.agentId)) byId.set(entry.agentId, entry)
      return [...byId.values()].toSorted(
        (a, b) => a.name.localeCompare(b.name, "en") || (a.agentId < b.agentId ? -1 : 1)
      )
    })
  })

/** The agents of a registry, as graphs of the sandbox. */
export const ofRegistry = (registry: AgentRegistry["Service"]): CatalogProvider =>
  Effect.sync(() =>
    registry.list.map(({ capabilities, description, id, modelApi, name }) => {
      const graphId = GraphId.make(`${sandboxNamespace}:${id}`)
      return { agentId: graphId, graphId, name, description, modelApi, capabilities }
    })
  )

/** The agents of the registry, and what else is given. */
export const layer = (
  others: ReadonlyArray<CatalogProvider> = []
): Layer.Layer<AgentCatalog, never, AgentRegistry> =>
  Layer.effect(
    AgentCatalog,
    Effect.map(AgentRegistry, (registry) => make([ofRegistry(registry), ...others]))
  )
