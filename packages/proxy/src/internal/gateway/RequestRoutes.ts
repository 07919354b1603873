/**
 * What becomes of a request on a run's socket that is within the run's bounds: a model call, a tool of the host, the
 * list of models, or a refusal.
 */
import type * as http from "node:http"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import * as CallAnswer from "./CallAnswer.ts"
import type * as GatewayRun from "./GatewayRun.ts"
import { answer as send, type Handler, newRequestId, pathOf } from "./GatewayServer.ts"
import * as ModelCall from "./ModelCall.ts"
import * as RequestReader from "./RequestReader.ts"
import type { ToolHandler } from "./ToolPort.ts"

export interface RequestRoutesOptions {
  readonly run: GatewayRun.GatewayRun
  readonly tools: ToolHandler
  /** Read nothing more from the request's connection for so long. */
  readonly slow: (request: http.IncomingMessage, millis: number) => void
}

/** The most that a request to the host's tools may hold; longer data belongs into the workspace. */
const toolBytesMax = 1024 * 1024

/** A client that is over its rate waits for at most this long, on the connection that it asked on. */
const slowMillisMax = 1000

export const isToolPath = (path: string): boolean => path === "/mcp" || path.startsWith("/tool/")

export const make = (options: RequestRoutesOptions): Handler => ({
  handle: (request, response) => handle(options, request, response),
  refuse: options.run.refuse
})

const handle = async (
  { run, slow, tools }: RequestRoutesOptions,
  request: http.IncomingMessage,
  response: http.ServerResponse
): Promise<void> => {
  const requestId = newRequestId()
  const target = request.url ?? ""
  const path = pathOf(target)
  const dialect = GatewayAnswers.dialectOf(path)
  const answer = (given: GatewayAnswers.Answer) => send(request, response, given, requestId)
  const exchange: ModelCall.Exchange = {
    requestId,
    request,
    response,
    path,
    query: "",
    dialect,
    at: new Date(),
    startedMs: performance.now(),
    answer
  }
  const early = run.ledger.request(performance.now())
  if (early !== undefined) {
    // Over the rate: answered, counted, and never more than a few lines in the audit.
    answer(GatewayAnswers.render(ModelCall.ofBudget(early), dialect))
    slow(request, Math.min(slowMillisMax, (early.retryAfterSeconds ?? 1) * 1000))
    run.refuse({
      requestId,
      method: methodOf(request),
      path: shortened(path),
      status: 429,
      code: "rate",
      detail: early.detail
    })
    return
  }
  if (isToolPath(path)) return serveTool(run, tools, exchange, target.slice(path.length + 1))

  const decision = RoutePolicy.decide({ method: request.method ?? "", target })
  if (decision._tag === "Answered") return answer(GatewayAnswers.health)
  if (decision._tag === "Refused") {
    const code = decision.status === 405 ? "method_not_allowed" : "path_not_allowed"
    return ModelCall.refuseWith(run, { ...exchange, path: shortened(path) }, GatewayAnswers.known(code), 0)
  }
  const { api } = decision.route
  if (api === undefined) return serveModels(run, exchange)
  return ModelCall.serve(run, { ...exchange, query: decision.query }, api)
}

const serveModels = (run: GatewayRun.GatewayRun, exchange: ModelCall.Exchange): void => {
  const answer = GatewayAnswers.models(run.modelNames)
  exchange.answer(answer)
  const call = CallAnswer.listed(exchange, answer, 0)
  const method = methodOf(exchange.request)
  run.addCall({
    at: exchange.at.toISOString(),
    requestId: exchange.requestId,
    method,
    path: exchange.path,
    status: answer.status,
    ...call,
    completed: true,
    outcome: "answered"
  })
  void run.append({
    type: "request.answered",
    requestId: exchange.requestId,
    method,
    path: exchange.path,
    status: answer.status,
    call
  })
}

const serveTool = async (
  run: GatewayRun.GatewayRun,
  tools: ToolHandler,
  exchange: ModelCall.Exchange,
  query: string
): Promise<void> => {
  const { path, request, requestId } = exchange
  const read = await RequestReader.read(request, toolBytesMax, run.reading)
  if (read._tag === "Aborted") return
  if (read._tag !== "Body")
    return ModelCall.refuseUnread(run, { ...exchange, path: shortened(path) }, read._tag)
  run.counts.active += 1
  try {
    exchange.answer(
      await tools({
        requestId,
        method: methodOf(request),
        path,
        query,
        headers: request.headers,
        body: read.body
      })
    )
  } finally {
    run.counts.active -= 1
    read.release()
  }
}

const methodOf = (request: http.IncomingMessage): string => (request.method ?? "").slice(0, 16)

/** What a client wrote is kept short and printable: it must not fill a disk, nor break a terminal. */
const shortened = (path: string): string => path.replace(/[^\x21-\x7e]/gu, "?").slice(0, 256)
