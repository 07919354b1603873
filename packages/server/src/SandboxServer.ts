/**
 * The HTTP server: its routes, its middleware, and its graceful shutdown.
 *
 * The caller provides the platform's HTTP server. When the scope closes, the server accepts no more runs, waits for
 * those under way, and then cancels the rest. Only after that does it stop listening.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import type { GraphExecutor } from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { AgentCatalog } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import type { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { Effect, Layer } from "effect"
import { HttpBody, HttpRouter, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { RateLimiter } from "effect/persistence"
import * as Authentication from "./internal/Authentication.ts"
import type { IdempotencyKeys } from "./IdempotencyKeys.ts"
import * as AccessHandlers from "./internal/AccessHandlers.ts"
import * as ApprovalHandlers from "./internal/ApprovalHandlers.ts"
import * as AgentHandler from "./internal/AgentHandler.ts"
import * as AuditHandlers from "./internal/AuditHandlers.ts"
import * as CallHandlers from "./internal/CallHandlers.ts"
import * as ChatHandler from "./internal/ChatHandler.ts"
import * as DeliveryHandler from "./internal/DeliveryHandler.ts"
import * as DetachedStart from "./internal/DetachedStart.ts"
import * as FollowHandler from "./internal/FollowHandler.ts"
import * as OutputHandler from "./internal/OutputHandler.ts"
import * as ProposalHandlers from "./internal/ProposalHandlers.ts"
import * as Readers from "./internal/Readers.ts"
import * as RecordingHandler from "./internal/RecordingHandler.ts"
import * as RequestSpans from "./internal/RequestSpans.ts"
import * as RunHandlers from "./internal/RunHandlers.ts"
import * as AllowedMethods from "./internal/AllowedMethods.ts"
import * as Surroundings from "./internal/Surroundings.ts"
import * as OperatorServer from "./internal/OperatorServer.ts"
import * as PageRoutes from "./internal/PageRoutes.ts"
import * as RunStart from "./internal/RunStart.ts"
import * as RunRoster from "./internal/RunRoster.ts"
import * as ServerApi from "./ServerApi.ts"
import * as ServerHealth from "./ServerHealth.ts"
import { HostFacts } from "./HostFacts.ts"
import * as ServerLimits from "./ServerLimits.ts"
import * as ServerMetrics from "./internal/ServerMetrics.ts"
import * as ThreadHandlers from "./internal/ThreadHandlers.ts"
import * as SignInHandler from "./internal/SignInHandler.ts"
import * as UnknownCallers from "./internal/UnknownCallers.ts"

interface SandboxServerOptions {
  /** Limits. Omitted fields have their default. */
  readonly limits?: Partial<ServerLimits.ServerLimits> | undefined
  /** Model for requests that specify none. Absent: such requests are refused. */
  readonly model?: string | undefined
  /** Valid names in `Host`, in addition to the address where the server listens and the local names. */
  readonly hostNames?: ReadonlyArray<string> | undefined
  /**
   * Address of a viewer of traces, with `{traceId}` in the place of the ID of the trace. The page shows it as a link of
   * each run. Absent: it shows the ID.
   */
  readonly traceUrl?: string | undefined
  /** Addresses of proxies whose `X-Forwarded-For` names the caller. Default: none, so a proxy is one caller. */
  readonly trustedProxies?: ReadonlyArray<string> | undefined
  /** Directory of the page's built files, such as `PageSite.directory`. Absent: no page is served. */
  readonly page?: string | undefined
}

/** Services that the server requires. */
type Needs = AgentCatalog | GrantStore | GraphExecutor | IdempotencyKeys | RunStore

/** Services of the platform, such as Node's HTTP server. */
export type Platform = OperatorServer.Platform

/**
 * Serves until its scope closes. With a second platform, it also serves the operator's routes at that address, until
 * the last run has ended.
 */
export const layer = <E = never, R = never>(
  options: SandboxServerOptions = {},
  operatorPlatform?: Layer.Layer<Platform, E, R>
): Layer.Layer<RunRoster.RunRoster, E, Needs | Platform | R> => {
  const limits = ServerLimits.make(options.limits)
  const operator: Layer.Layer<never, E, RunRoster.RunRoster | RunStore | R> =
    operatorPlatform === undefined
      ? Layer.empty
      : Layer.provide(OperatorServer.layer(options.hostNames ?? []), operatorPlatform)
  // The layers below are built before the server and closed after it.
  return drained.pipe(
    Layer.provideMerge(
      HttpRouter.serve(routes(options, limits), { disableLogger: true, disableListenLog: true }).pipe(
        Layer.provide(RequestSpans.layer)
      )
    ),
    Layer.provideMerge(operator),
    Layer.provideMerge(RunRoster.layer(limits)),
    Layer.provide(RateLimiter.layer),
    Layer.provide(RateLimiter.layerStoreMemory)
  )
}

/** The routes and their middleware, without a server. */
export const routes = (options: SandboxServerOptions, limits: ServerLimits.ServerLimits) => {
  const known = UnknownCallers.make()
  return Layer.mergeAll(
    HttpApiBuilder.layer(ServerApi.ServerApi).pipe(
      Layer.provide([
        agents,
        chat(options, limits),
        runs(options, limits),
        approvals,
        access,
        threads,
        proposals(limits),
        signIn(limits, known, options.trustedProxies),
        host
      ]),
      Layer.provide([Authentication.layer(limits, options.trustedProxies, known), ServerApi.layerReadable])
    ),
    ServerHealth.liveness,
    options.page === undefined ? Layer.empty : PageRoutes.layer(options.page),
    Surroundings.layer(options.hostNames ?? [], { methodsOf: AllowedMethods.ofApi(ServerApi.ServerApi) })
  )
}

/** Drains the runs on close. Built after the server, so that it closes before it. */
const drained = Layer.effectDiscard(
  Effect.flatMap(RunRoster.RunRoster, ({ drain }) => Effect.acquireRelease(Effect.void, () => drain))
)

const agents = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "agents",
  Effect.fnUntraced(function* (handlers) {
    const list = yield* AgentHandler.make
    return handlers.handle("list", () => list)
  })
)

const chat = (options: SandboxServerOptions, limits: ServerLimits.ServerLimits) =>
  HttpApiBuilder.group(
    ServerApi.ServerApi,
    "chat",
    Effect.fnUntraced(function* (handlers) {
      const catalog = yield* AgentCatalog
      const count = (end: ServerMetrics.EndedRun) =>
        Effect.flatMap(catalog.list, (known) =>
          ServerMetrics.runEnded(new Set(known.map(({ graphId }) => graphId)), end)
        )
      const starts = yield* RunStart.make({ limits, model: options.model, count })
      const run = ChatHandler.make(limits, starts)
      const start = yield* DetachedStart.make(starts)
      return handlers
        .handleRaw("run", ({ headers, query, request }) =>
          run({ request, protocol: query.protocol, idempotencyKey: headers["idempotency-key"] })
        )
        .handleRaw("start", ({ headers, request }) =>
          start({ request, idempotencyKey: headers["idempotency-key"] })
        )
    })
  )

/** Answers with plain data, built field by field by its handler: encoding it with the schema would not change it. */
const json = <A extends object, E, R>(answer: Effect.Effect<A, E, R>) =>
  asIs(Effect.map(answer, (found) => HttpBody.jsonUnsafe(found)))

/** Answers with a body that is already encoded. */
const asIs = <E, R>(body: Effect.Effect<HttpBody.HttpBody, E, R>) =>
  Effect.map(body, (found) => HttpServerResponse.setBody(unstored, found))

const unstored = HttpServerResponse.empty({ status: 200, headers: { "cache-control": "private, no-store" } })

const runs = ({ traceUrl }: SandboxServerOptions, limits: ServerLimits.ServerLimits) =>
  HttpApiBuilder.group(
    ServerApi.ServerApi,
    "runs",
    Effect.fnUntraced(function* (handlers) {
      const own = yield* RunHandlers.make(traceUrl)
      const { answer, output, patch } = yield* OutputHandler.make(own)
      const readers = yield* Readers.make(limits)
      const follow = yield* FollowHandler.make(limits, own, readers)
      const recording = RecordingHandler.make(limits, own, readers)
      const audit = yield* AuditHandlers.make(own)
      const { calls, tools } = yield* CallHandlers.make(own, audit)
      const retryRelay = yield* DeliveryHandler.make(own)
      return handlers
        .handle("list", ({ query }) => json(own.list(query)))
        .handle("get", ({ params }) => asIs(own.get(params.id)))
        .handle("cancel", ({ params }) => own.cancel(params.id))
        .handleRaw("events", ({ headers, params, query }) =>
          follow(params.id, FollowHandler.afterOf(headers["last-event-id"], query.after))
        )
        .handle("stdout", ({ headers, params }) => output(params.id, "stdout", headers.range))
        .handle("stderr", ({ headers, params }) => output(params.id, "stderr", headers.range))
        .handle("recording", ({ params }) => recording(params.id))
        .handle("calls", ({ params, query }) => json(calls(params.id, query)))
        .handle("callRequest", ({ params }) => audit.body(params.id, params.callId, "request"))
        .handle("callAnswer", ({ params }) => audit.body(params.id, params.callId, "answer"))
        .handle("tools", ({ params }) => json(tools(params.id)))
        .handle("audit", ({ params }) => json(audit.verify(params.id)))
        .handle("auditEntries", ({ params, query }) => json(audit.entries(params.id, query)))
        .handle("answer", ({ params }) => answer(params.id))
        .handle("patch", ({ params }) => patch(params.id))
        .handle("retryRelay", ({ params }) => json(retryRelay(params.id)))
    })
  )

const approvals = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "approvals",
  Effect.fnUntraced(function* (handlers) {
    const { decide, list, ofRun } = yield* ApprovalHandlers.make(yield* RunHandlers.make())
    return handlers
      .handle("list", ({ query }) => json(list(query)))
      .handle("ofRun", ({ params }) => json(ofRun(params.id)))
      .handle("decide", ({ params, payload }) => json(decide(params.id, payload)))
  })
)

const threads = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "threads",
  Effect.fnUntraced(function* (handlers) {
    const { get, list, remove } = yield* ThreadHandlers.make
    return handlers
      .handle("list", () => json(list))
      .handle("get", ({ params, query }) => json(get(params.key, query.before)))
      .handle("remove", ({ params, query }) => json(remove(params.key, query.history)))
  })
)

const proposals = (limits: ServerLimits.ServerLimits) =>
  HttpApiBuilder.group(
    ServerApi.ServerApi,
    "proposals",
    Effect.fnUntraced(function* (handlers) {
      const propose = yield* ProposalHandlers.make(limits)
      const { createPersonality, createSkill, editPersonality, editSkill } = ProposalHandlers.kinds
      return handlers
        .handleRaw("createPersonality", ({ request }) => propose(...createPersonality)(request))
        .handleRaw("createSkill", ({ request }) => propose(...createSkill)(request))
        .handleRaw("editPersonality", ({ params, request }) =>
          propose(editPersonality[0], editPersonality[1](params.name))(request)
        )
        .handleRaw("editSkill", ({ params, request }) =>
          propose(editSkill[0], editSkill[1](params.name))(request)
        )
    })
  )

const access = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "access",
  Effect.fnUntraced(function* (handlers) {
    const { connections, grants, uses } = yield* AccessHandlers.make
    return handlers
      .handle("grants", ({ query }) => json(grants(query)))
      .handle("connections", ({ query }) => json(connections(query)))
      .handle("uses", ({ params, query }) => json(uses(params.id, query)))
  })
)

const host = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "host",
  Effect.fnUntraced(function* (handlers) {
    const { hostId, missingGraphIds } = yield* HostFacts
    const view = Effect.map(missingGraphIds, (missing) => ({
      ...(hostId === undefined ? {} : { hostId }),
      missingGraphIds: missing
    }))
    return handlers.handle("get", () => view)
  })
)

const signIn = (
  limits: ServerLimits.ServerLimits,
  known: UnknownCallers.KnownTokens,
  trustedProxies?: ReadonlyArray<string>
) =>
  HttpApiBuilder.group(
    ServerApi.ServerApi,
    "signIn",
    Effect.fnUntraced(function* (handlers) {
      const { get, signIn, signOut } = yield* SignInHandler.make(limits, known, trustedProxies)
      return handlers
        .handle("signIn", () => signIn)
        .handle("get", () => get)
        .handle("signOut", () => signOut)
    })
  )
