/**
 * The HTTP server on a run's own socket: reads requests strictly, decides by route, answers for itself.
 *
 * One server per run. Whoever speaks here is that run, whatever he says; when it is closed, so is everything on it.
 */
import * as http from "node:http"
import type { Socket } from "node:net"
import * as GatewayAnswers from "../GatewayAnswers.ts"
import * as RoutePolicy from "../RoutePolicy.ts"
import * as CallAnswer from "./CallAnswer.ts"
import * as GatewayRun from "./GatewayRun.ts"
import * as ModelCall from "./ModelCall.ts"
import * as RequestReader from "./RequestReader.ts"

/** Answers a request that is for the host's tools; `undefined` where the path is none of theirs. */
export type ToolHandler = (request: {
  readonly requestId: string
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: http.IncomingHttpHeaders
  readonly body: Uint8Array
}) => Promise<GatewayAnswers.Answer>

export interface GatewayServerOptions {
  readonly run: GatewayRun.GatewayRun
  readonly connectionsMax: number
  readonly headerSecondsMax: number
  readonly requestSecondsMax: number
  readonly tools: ToolHandler
}

const headerBytesMax = 16 * 1024

/** Of a call of a tool; what is longer belongs into the workspace. */
const toolBytesMax = 1024 * 1024

/** How long a client may go on sending what is not read any more. */
const lingerMillisMax = 2000

export const isToolPath = (path: string): boolean => path === "/mcp" || path.startsWith("/tool/")

export const make = (options: GatewayServerOptions): http.Server => {
  const { run } = options
  const server = http.createServer(
    {
      maxHeaderSize: headerBytesMax,
      headersTimeout: Math.min(options.headerSecondsMax, options.requestSecondsMax) * 1000,
      requestTimeout: options.requestSecondsMax * 1000,
      keepAliveTimeout: 65_000,
      connectionsCheckingInterval: 1000,
      insecureHTTPParser: false,
      requireHostHeader: true,
      noDelay: true
    },
    (request, response) => {
      void onRequest(options, request, response).catch((thrown: unknown) => {
        // A defect of ours is one run's bad answer, and never the end of the host process.
        run.refuse({ status: 500, code: "defect", detail: String(thrown) })
        response.destroy()
      })
    }
  )
  server.maxConnections = options.connectionsMax
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => onMalformed(run, error, socket))
  // Without a listener Node closes them without a word.
  server.on("connect", (_request, socket: Socket) =>
    refuseRaw(run, socket, GatewayAnswers.known("method_not_allowed"))
  )
  // While it listens: that no connection can be accepted is told by those that are not answered.
  server.on("error", (error) => run.refuse({ status: 503, code: "not_accepted", detail: error.message }))
  server.on("drop", () =>
    run.refuse({
      status: 503,
      code: "too_many_connections",
      detail: `over ${options.connectionsMax} connections`
    })
  )
  return server
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const onRequest = async (
  { run, tools }: GatewayServerOptions,
  request: http.IncomingMessage,
  response: http.ServerResponse
): Promise<void> => {
  const requestId = GatewayRun.newRequestId()
  const target = request.url ?? ""
  const mark = target.indexOf("?")
  const path = mark === -1 ? target : target.slice(0, mark)
  const dialect = GatewayAnswers.dialectOf(path)
  request.on("error", ignore)
  response.on("error", ignore)

  const answer = ({ body, headers, status }: GatewayAnswers.Answer) => {
    if (response.headersSent || response.destroyed) return
    response.writeHead(status, {
      ...headers,
      "x-request-id": requestId,
      "content-length": String(Buffer.byteLength(body))
    })
    response.end(body)
    // What is still on its way is thrown away: a client that only sends would never read why.
    request.resume()
  }
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
  if (path === RoutePolicy.healthPath) return answer(GatewayAnswers.health)

  const early = run.ledger.request(performance.now())
  if (early !== undefined) {
    // Over the rate: answered, counted, and never more than a few lines in the audit.
    answer(GatewayAnswers.render(ModelCall.ofBudget(early), dialect))
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
  if (isToolPath(path)) return serveTool(run, tools, exchange, mark === -1 ? "" : target.slice(mark + 1))

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
  note(run, exchange, answer, 0)
}

const note = (
  run: GatewayRun.GatewayRun,
  exchange: ModelCall.Exchange,
  answer: GatewayAnswers.Answer,
  requestBytes: number
): void => {
  const method = methodOf(exchange.request)
  run.addCall({
    at: exchange.at.toISOString(),
    requestId: exchange.requestId,
    method,
    path: exchange.path,
    status: answer.status,
    requestBytes,
    responseBytes: Buffer.byteLength(answer.body),
    durationMs: CallAnswer.millisSince(exchange.startedMs),
    completed: true,
    outcome: "answered"
  })
  void run.append({
    type: "request.answered",
    requestId: exchange.requestId,
    method,
    path: exchange.path,
    status: answer.status
  })
}

const serveTool = async (
  run: GatewayRun.GatewayRun,
  tools: ToolHandler,
  exchange: ModelCall.Exchange,
  query: string
): Promise<void> => {
  const { path, request, requestId } = exchange
  const read = await RequestReader.read(request, toolBytesMax, run.shared.holding)
  if (read._tag === "Aborted") return
  if (read._tag !== "Body") {
    const error = read._tag === "TooLarge" ? GatewayAnswers.known("request_too_large") : GatewayAnswers.busy
    return ModelCall.refuseWith(run, { ...exchange, path: shortened(path) }, error, 0)
  }
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

/** HTTP that is none: what smuggles, breaks off, is too long or too slow. The parser has stopped; the connection ends. */
const onMalformed = (run: GatewayRun.GatewayRun, error: NodeJS.ErrnoException, socket: Socket): void => {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy()
    return
  }
  const known =
    error.code === "ERR_HTTP_REQUEST_TIMEOUT"
      ? GatewayAnswers.known("request_timeout")
      : GatewayAnswers.known("bad_request", error.code === "HPE_HEADER_OVERFLOW" ? 431 : 400)
  refuseRaw(run, socket, known, error.code)
}

const refuseRaw = (
  run: GatewayRun.GatewayRun,
  socket: Socket,
  error: GatewayAnswers.GatewayError,
  detail?: string
): void => {
  // Node has let go of this connection: an error that nobody hears would end the host process.
  socket.on("error", ignore)
  const { body, headers, status } = GatewayAnswers.render(error, "openai")
  const lines = Object.entries({
    ...headers,
    "content-length": String(Buffer.byteLength(body)),
    connection: "close"
  })
  socket.end(
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ""}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n${body}`
  )
  setTimeout(() => socket.destroy(), lingerMillisMax).unref()
  run.refuse({ status, code: error.code, detail: detail ?? error.message })
}

const ignore = (): void => undefined

const methodOf = (request: http.IncomingMessage): string => (request.method ?? "").slice(0, 16)

/** What a client wrote is kept short and printable: it must not fill a disk, nor break a terminal. */
const shortened = (path: string): string => path.replace(/[^\x21-\x7e]/gu, "?").slice(0, 256)
