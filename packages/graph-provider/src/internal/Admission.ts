/** Whether a run may start, and as what. Asked before anything is made. */
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import { Clock, Effect, Schema } from "effect"
import * as ExecutionGrant from "../grants/ExecutionGrant.ts"
import { type GraphRefused, GraphRunRequest, type RunContext } from "../graphs/GraphProvider.ts"
import * as GrantPermissions from "../grants/GrantPermissions.ts"
import { GrantRuns } from "../grants/GrantRuns.ts"
import { GrantStore } from "../grants/GrantStore.ts"
import { Repositories } from "../Repositories.ts"
import * as GraphRefusal from "./GraphRefusal.ts"
import type { Granted, SettledOptions } from "./GraphSpec.ts"
import { sandboxNamespace } from "../graphs/GraphId.ts"

/** A caller without types may ask for anything. */
const validate = Schema.decodeUnknownEffect(Schema.toType(GraphRunRequest), { errors: "all" })

/** What may start. */
export interface Admitted {
  readonly spec: Omit<SandboxSpec.SandboxSpecInput, "argv">
}

const denied = GraphRefusal.as("authz_denied")

/**
 * Refuses in this order: sandboxes are switched off, no grant opens the graph, the request is none, it names something
 * beyond the grant, the grant has as many runs as it may, `prepare` cannot do it, no repository, no spec. A place among
 * the grant's runs is held until the scope closes.
 */
export const make = Effect.fnUntraced(function* <A extends Admitted>(
  { enabled, offer }: Pick<SettledOptions, "enabled" | "offer">,
  prepare: (
    request: GraphRunRequest,
    context: RunContext
  ) => Effect.Effect<(granted: Granted) => A, GraphRefused>
) {
  const grants = yield* GrantStore
  const runs = yield* GrantRuns
  const repositories = yield* Repositories

  const grantOf = Effect.fnUntraced(function* (
    { caller, graphId }: GraphRunRequest,
    { grantId }: RunContext
  ) {
    const grant = yield* Effect.mapError(grants.find(grantId), GraphRefusal.as("internal"))
    if (grant === undefined) return yield* denied(new ExecutionGrant.GrantNotFound({ grantId }))
    const now = new Date(yield* Clock.currentTimeMillis)
    yield* Effect.fromResult(ExecutionGrant.check(grant, graphId, now)).pipe(
      Effect.andThen(Effect.fromResult(ExecutionGrant.checkAccount(grant, caller.billingAccountId))),
      Effect.mapError(denied)
    )
    return grant
  })

  return Effect.fnUntraced(function* (request: GraphRunRequest, context: RunContext) {
    if (!enabled) return yield* GraphRefusal.disabled
    const grant = yield* grantOf(request, context)
    const { id, permissions } = grant
    yield* Effect.mapError(validate(request), GraphRefusal.ofRequest)
    const { budget } = yield* Effect.mapError(
      Effect.fromResult(GrantPermissions.decide(id, permissions, request, offer)),
      denied
    )
    yield* Effect.mapError(runs.claim(id, permissions.concurrentRunsMax), GraphRefusal.ofRuns)
    const prepared = yield* prepare(request, context)
    if (request.repository !== undefined) {
      yield* Effect.mapError(repositories.check(request.repository), GraphRefusal.ofRepository)
    }
    const admitted = prepared({ grant, budget })
    yield* Effect.mapError(SandboxSpec.decode({ argv: ["task"], ...admitted.spec }), GraphRefusal.ofSpec)
    return admitted
  })
})

/** The part of a graph's id that names the agent. */
export const agentIdOf = ({ graphId }: Pick<GraphRunRequest, "graphId">): string =>
  graphId.slice(sandboxNamespace.length + 1)
