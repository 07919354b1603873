/**
 * Lists the graphs that a user can choose, for catalogs and menus.
 *
 * Discovery is separate from execution: listing needs no engine, and an entry grants no permission.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { Capabilities, ModelApi } from "../agents/AgentFields.ts"
import { AgentRegistry } from "../agents/AgentRegistry.ts"
import { GraphId, sandboxNamespace } from "./GraphId.ts"

/** One entry of a catalog. */
export const AgentDescriptor = Schema.Struct({
  /** Equal to `graphId`. */
  agentId: GraphId,
  graphId: GraphId,
  name: Schema.String,
  description: Schema.NullOr(Schema.String),
  modelApi: Schema.optionalKey(ModelApi),
  capabilities: Schema.optionalKey(Capabilities)
})

export type AgentDescriptor = typeof AgentDescriptor.Type

/** A source of catalog entries. */
export type CatalogProvider = Effect.Effect<ReadonlyArray<AgentDescriptor>>

export class AgentCatalog extends Context.Service<
  AgentCatalog,
  {
    /** Sorted by name. If two entries have the same ID, the first one counts. */
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

/** Returns the agents of a registry as graphs of the sandbox, sorted by name. */
export const ofRegistry = (registry: AgentRegistry["Service"]): ReadonlyArray<AgentDescriptor> =>
  registry.list.map(({ capabilities, description, id, modelApi, name }) => {
    const graphId = GraphId.make(`${sandboxNamespace}:${id}`)
    return { agentId: graphId, graphId, name, description, modelApi, capabilities }
  })

/** A catalog of the registry's agents and of other providers. */
export const layer = (
  others: ReadonlyArray<CatalogProvider> = []
): Layer.Layer<AgentCatalog, never, AgentRegistry> =>
  Layer.effect(
    AgentCatalog,
    Effect.map(AgentRegistry, (registry) => make([Effect.succeed(ofRegistry(registry)), ...others]))
  )
