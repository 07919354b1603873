/** Delivers the kept commits of a run again, if its caller's grant still allows the repository and the graph. */
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import * as ExecutionGrant from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as GrantConnections from "@cogni/sandbox-graph-provider/grants/GrantConnections"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { allowsRepository, RepositoryNotGranted } from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import { Clock, Effect, Option, Schema } from "effect"
import { Deliveries } from "../Deliveries.ts"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import type { RunHandlers } from "./RunHandlers.ts"
import * as RunView from "./RunView.ts"

const encodeRecord = Schema.encodeSync(Schema.toCodecJson(DeliveryRecord.DeliveryRecord))

const isGraphId = Schema.is(GraphId)

const notKept = Problem.make(
  "not_found",
  "NotKept",
  "no commits of this run are kept here: they were delivered or dropped, or another host keeps them"
)

const stillRunning = Problem.make(
  "conflict",
  "RunUnderWay",
  "the run is still under way. Its commits are delivered when it has ended"
)

export const make = Effect.fnUntraced(function* ({ lookUp }: RunHandlers) {
  const deliveries = yield* Effect.serviceOption(Deliveries)
  const store = yield* RunStore
  const grants = yield* GrantStore

  /** Fails unless the grant would allow the run and its repository now. */
  const permitted = Effect.fnUntraced(function* (graphId: string | undefined, repository: string) {
    const grant = yield* CurrentGrant
    const now = new Date(yield* Clock.currentTimeMillis)
    const denied = ({ _tag, message }: { readonly _tag: string; readonly message: string }) =>
      Effect.fail(Problem.make("authz_denied", _tag, message))
    if (graphId !== undefined && isGraphId(graphId))
      yield* Effect.fromResult(ExecutionGrant.check(grant, graphId, now)).pipe(Effect.catch(denied))
    if (!allowsRepository(grant.permissions, repository))
      return yield* denied(new RepositoryNotGranted({ grantId: grant.id }))
  })

  return Effect.fn("SandboxServer.retryRelay")(function* (id: string) {
    const { here, record, runId } = yield* lookUp(id)
    if (here !== undefined || (record !== undefined && !RunView.isOver(record)))
      return yield* Effect.fail(stillRunning)
    const facts = record && RunFacts.of(record)
    if (record === undefined || facts?.repository === undefined || Option.isNone(deliveries))
      return yield* Effect.fail(notKept)
    yield* permitted(facts.graphId, facts.repository)
    const { billingAccountId, id: grantId } = yield* CurrentGrant
    const {
      annotations,
      problem,
      record: relay
    } = yield* deliveries.value.retry(record).pipe(
      GrantConnections.asUser(grants, { grantId, billingAccountId, runId }),
      Effect.catch(({ message, reason }) =>
        Effect.fail(reason === "NotKept" ? notKept : Problem.make("conflict", reason, message))
      )
    )
    yield* store
      .annotate(runId, { ...annotations, relay: encodeRecord(relay) })
      .pipe(Effect.catch(Problem.storeUnavailable))
    const { keptAt: _, message: __, ...told } = relay
    return { runId, relay: told, ...(problem === undefined ? {} : { problem }) }
  })
})
