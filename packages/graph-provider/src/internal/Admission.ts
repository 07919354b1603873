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
import type * as GraphSpec from "./GraphSpec.ts"
import { sandboxNamespace } from "../graphs/GraphId.ts"

/** A caller without types may ask for anything. */
const validate = Schema.decodeUnknownEffect(Schema.toType(GraphRunRequest), { errors: "all" })

/** What may start. */
export interface Admitted {
  readonly spec: Omit<SandboxSpec.SandboxSpecInput, "argv">
}

export interface AdmissionOptions extends GraphSpec.SettledOptions {
  readonly enabled: boolean
}

/**
 * Whether anything may start at all, and for whom: switched on, with a grant that opens the graph, asked for well, and
 * nothing named beyond the grant. In this order. A place among the grant's runs is held until the scope closes.
 */
export const makeGate = Effect.fnUntraced(function* ({
  enabled,
  offer
}: Pick<AdmissionOptions, "enabled" | "offer">) {
  const grants = yield* GrantStore
  const runs = yield* GrantRuns

  const granted = Effect.fnUntraced(function* (
    { caller, graphId }: GraphRunRequest,
    { grantId }: RunContext
  ) {
    const grant = yield* Effect.mapError(grants.find(grantId), GraphRefusal.ofStore)
    if (grant === undefined) {
      return yield* GraphRefusal.ofGrant(new ExecutionGrant.GrantNotFound({ grantId }))
    }
    const now = new Date(yield* Clock.currentTimeMillis)
    yield* Effect.fromResult(ExecutionGrant.check(grant, graphId, now)).pipe(
      Effect.andThen(Effect.fromResult(ExecutionGrant.checkAccount(grant, caller.billingAccountId))),
      Effect.mapError(GraphRefusal.ofGrant)
    )
    return grant
  })

  return Effect.fnUntraced(function* (request: GraphRunRequest, context: RunContext) {
    if (!enabled) return yield* GraphRefusal.disabled
    const grant = yield* granted(request, context)
    yield* Effect.mapError(validate(request), GraphRefusal.ofRequest)
    const { budget } = yield* Effect.mapError(
      Effect.fromResult(GrantPermissions.decide(grant.id, grant.permissions, request, offer)),
      GraphRefusal.ofGrant
    )
    yield* Effect.mapError(runs.claim(grant.id, grant.permissions.concurrentRunsMax), GraphRefusal.ofRuns)
    return { grant, budget } satisfies GraphSpec.Granted
  })
})

/** After the gate refuses in this order: what cannot be done as `prepare` says, no repository, no spec. */
export const make = Effect.fnUntraced(function* <A extends Admitted>(
  options: AdmissionOptions,
  prepare: (
    request: GraphRunRequest,
    context: RunContext
  ) => Effect.Effect<(granted: GraphSpec.Granted) => A, GraphRefused>
) {
  const gate = yield* makeGate(options)
  const repositories = yield* Repositories

  return Effect.fnUntraced(function* (request: GraphRunRequest, context: RunContext) {
    const granted = yield* gate(request, context)
    const prepared = yield* prepare(request, context)
    if (request.repository !== undefined) {
      yield* Effect.mapError(repositories.check(request.repository), GraphRefusal.ofRepository)
    }
    const admitted = prepared(granted)
    yield* Effect.mapError(SandboxSpec.decode({ argv: ["task"], ...admitted.spec }), GraphRefusal.ofSpec)
    return admitted
  })
})

/** The part of a graph's id that names the agent. */
export const agentIdOf = ({ graphId }: Pick<GraphRunRequest, "graphId">): string =>
  graphId.slice(sandboxNamespace.length + 1)
