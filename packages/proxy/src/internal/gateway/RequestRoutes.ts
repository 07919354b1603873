/**
 * Routes a request that is within the run's limits: to a model call, to a host tool, to the list of models, or to a
 * refusal.
 */
import type * as http from "node:http"
import * as Effect from "effect/Effect"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import * as UpstreamProfile from "../../UpstreamProfile.ts"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import * as ModelCall from "./ModelCall.ts"
import * as PackageDesk from "./PackageDesk.ts"
import * as RequestReader from "./RequestReader.ts"
import * as RequestRefused from "./RequestRefused.ts"
import type { RunConnections } from "./RunConnections.ts"
import * as RunShare from "./RunShare.ts"
import type { ToolCaller, ToolHandler } from "./ToolPort.ts"

/** Services of a socket. */
export interface Serves {
  /** The model and the host's tools. */
  readonly model: boolean
  readonly packages: boolean
}

export interface RequestRoutes {
  readonly serves: Serves
  readonly run: GatewayRun
  readonly tools: ToolHandler
  readonly connections: Pick<RunConnections, "pause">
}

/** Maximum body of a request to the host's tools. Larger data belongs in the workspace. */
const toolBytesMax = 1024 * 1024

/** Maximum pause of a connection whose client exceeds its rate. */
const slowMillisMax = 1000

const isToolPath = (path: string): boolean => path === "/mcp" || path.startsWith("/tool/")

export const serve = (
  { connections, run, serves, tools }: RequestRoutes,
  request: http.IncomingMessage,
  response: http.ServerResponse
): Effect.Effect<void> =>
  Effect.suspend(() => {
    const exchange = Exchange.make(request, response)
    const { dialect, method, path, requestId } = exchange
    // Requests for packages do not count for the budget of the model. The mirror slows them down itself.
    if (serves.packages && PackageDesk.isPackagePath(path)) return PackageDesk.serve(run, exchange)
    const early = run.ledger.request(performance.now())
    if (early !== undefined) {
      // Over the rate: answered and counted, but with only a few lines in the audit.
      Exchange.answer(exchange, GatewayAnswers.render(GatewayAnswers.ofBudget(early), dialect))
      connections.pause(request.socket, Math.min(slowMillisMax, (early.retryAfterSeconds ?? 1) * 1000))
      run.refuse({
        requestId,
        method,
        path: RequestRefused.shortened(path),
        status: 429,
        code: "rate",
        detail: early.detail
      })
      return Effect.void
    }
    return (serves.model ? route(run, tools, exchange) : notServed).pipe(
      Effect.catchTag("RequestRefused", (refused) =>
        Effect.sync(() => RequestRefused.refuse(run, exchange, refused))
      )
    )
  })

const notServed = Effect.fail(
  new RequestRefused.RequestRefused({ error: GatewayAnswers.noModel, requestBytes: 0 })
)

const route = (run: GatewayRun, tools: ToolHandler, exchange: Exchange.Exchange) => {
  const { method, path, request } = exchange
  const target = request.url ?? ""
  if (isToolPath(path)) return serveTool(run, tools, exchange, target.slice(path.length + 1))
  const { profile } = run.shared
  const isOpen = (api: RoutePolicy.Api) => UpstreamProfile.isOpen(profile, api)
  const decision = RoutePolicy.decide({ method, target, isOpen })
  if (decision._tag === "Answered") return Effect.sync(() => Exchange.answer(exchange, GatewayAnswers.health))
  if (decision._tag === "Closed") {
    const open = RoutePolicy.routes.filter(({ api }) => api === undefined || isOpen(api))
    const error = GatewayAnswers.notOffered(decision.route, open)
    return Effect.fail(new RequestRefused.RequestRefused({ error, requestBytes: 0 }))
  }
  if (decision._tag === "Refused") {
    const code = decision.status === 405 ? "method_not_allowed" : "path_not_allowed"
    const error = GatewayAnswers.known(code)
    return Effect.fail(new RequestRefused.RequestRefused({ error, requestBytes: 0 }))
  }
  const { api } = decision.route
  if (api === undefined) return Effect.sync(() => serveModels(run, exchange))
  return ModelCall.serve(run, exchange, { api, query: decision.query }).pipe(
    Effect.catchTag("BodyUnread", ({ reason }) => Effect.fail(RequestRefused.unread(exchange, reason)))
  )
}

const serveModels = (run: GatewayRun, exchange: Exchange.Exchange): void => {
  const answer = GatewayAnswers.models(run.modelNames)
  Exchange.answer(exchange, answer)
  const call = Exchange.listed(exchange, answer, "answered")
  const { durationMs, method, path, requestBytes, requestId, responseBytes, status } = call
  run.traffic.call(call)
  run.audit.note({
    type: "request.answered",
    requestId,
    method,
    path,
    status,
    call: { requestBytes, responseBytes, durationMs }
  })
}

const callerOf = ({ response }: Exchange.Exchange): ToolCaller => ({
  isGone: () => response.destroyed && !response.writableFinished,
  whenGone: (then) =>
    void response.once("close", () => {
      if (!response.writableFinished) then()
    })
})

const serveTool = (run: GatewayRun, tools: ToolHandler, exchange: Exchange.Exchange, query: string) =>
  Effect.acquireUseRelease(
    Effect.sync(() => RunShare.holding(run.reading.share)),
    (held) => {
      const { method, path, request, requestId } = exchange
      return RequestReader.read(request, toolBytesMax, run.reading, held).pipe(
        Effect.flatMap((body) =>
          tools({ requestId, method, path, query, headers: request.headers, body }, callerOf(exchange))
        ),
        Effect.map((answer) => Exchange.answer(exchange, answer))
      )
    },
    (held) => Effect.sync(held.release)
  ).pipe(
    Effect.catchTag("BodyUnread", ({ reason }) =>
      reason === "Aborted" ? Effect.void : Effect.fail(RequestRefused.unread(exchange, reason))
    )
  )
