/** Decides whether a run may start, and with which spec. Runs before any resource is created. */
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { OpenSpecInput, SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Clock, Effect, type Result, Schema, type Scope } from "effect"
import * as ExecutionGrant from "../grants/ExecutionGrant.ts"
import { GraphRunRequest, type RunContext } from "../graphs/GraphProvider.ts"
import { type GraphRefused } from "../graphs/GraphRun.ts"
import * as GrantPermissions from "../grants/GrantPermissions.ts"
import { GrantRuns } from "../grants/GrantRuns.ts"
import { GrantStore } from "../grants/GrantStore.ts"
import { Repositories } from "../Repositories.ts"
import * as GraphRefusal from "./GraphRefusal.ts"
import type { Granted, SettledOptions } from "./GraphSpec.ts"
import { sandboxNamespace } from "../graphs/GraphId.ts"

/** Checks the request at runtime, because an untyped caller can send anything. */
const validate = Schema.decodeUnknownEffect(Schema.toType(GraphRunRequest), { errors: "all" })

/** A run that may start. */
export interface Admitted {
  readonly spec: OpenSpecInput | SandboxSpecInput
}

const denied = GraphRefusal.as("authz_denied")

/**
 * Refuses in this order: sandboxes are disabled, the grant does not allow the graph, the request is invalid, it asks
 * for more than the grant allows. After that: the grant has no free slot, `prepare` fails, the repository is
 * unavailable, the spec is invalid, the proxy lacks a tool that it names, the account cannot pay or has too many runs.
 * A slot of the grant is held until the scope closes.
 */
export const make = Effect.fnUntraced(function* <A extends Admitted>(
  { enabled, offer }: Pick<SettledOptions, "enabled" | "offer">,
  prepare: (
    request: GraphRunRequest,
    context: RunContext
  ) => Effect.Effect<(granted: Granted) => Result.Result<A, GraphRefused>, GraphRefused, Scope.Scope>
) {
  const grants = yield* GrantStore
  const runs = yield* GrantRuns
  const repositories = yield* Repositories
  const runner = yield* SandboxRunner

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
    const admitted = yield* Effect.fromResult(prepared({ grant, budget }))
    yield* Effect.mapError(runner.check(admitted.spec), GraphRefusal.ofSpec)
    return admitted
  })
})

/** Returns the part of a graph ID that names the agent. */
export const agentIdOf = ({ graphId }: Pick<GraphRunRequest, "graphId">): string =>
  graphId.slice(sandboxNamespace.length + 1)
