/**
 * HTTP server on a run's own socket: enforces the run's limits, parses requests strictly, and answers health checks.
 *
 * One server per run: its socket identifies the run, and closing it closes every connection. A request within the
 * limits runs in a fiber (`RequestRoutes`). The limits are plain calls within Node's callbacks, because a flood of
 * refused requests must cost as little as possible.
 */
import * as http from "node:http"
import type { Socket } from "node:net"
import * as Effect from "effect/Effect"
import type { CallbackFibers } from "../CallbackFibers.ts"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { Refusal } from "./GatewayRun.ts"
import type { Metered, ProcessorMeter } from "./ProcessorMeter.ts"
import type { RunConnections } from "./RunConnections.ts"
import type { RunGate } from "./RunGate.ts"
import type { RunShare } from "./RunShare.ts"

interface GatewayServerOptions {
  /** Fibers of the requests. */
  readonly requests: CallbackFibers
  /** Serves a request that is within the limits. */
  readonly serve: (request: http.IncomingMessage, response: http.ServerResponse) => Effect.Effect<void>
  readonly refuse: (refusal: Refusal) => void
  readonly gate: RunGate
  readonly connections: RunConnections
  readonly meter: ProcessorMeter
  readonly metered: Metered
  /** The run's share of connections. */
  readonly share: RunShare
  readonly headerSecondsMax: number
  readonly requestSecondsMax: number
  /** Stops listening for this time, because too many connections arrived. */
  readonly onCrowd: (millis: number) => void
}

const headerBytesMax = 16 * 1024

/** How long a client may keep sending data that is no longer read. */
const lingerMillisMax = 2000

/** Pause of a connection that has sent too many requests. */
const slowMillis = 1000

/**
 * Bounds of the interval at which Node looks for connections that are too slow: half the time that they have. Each run
 * has such a timer, so a short interval would wake the thread of many idle runs all the time.
 */
const checkMillis = { min: 1000, max: 10_000 }

/** How long no connection is accepted after too many arrived. */
const crowdMillis = 1000

/** Pause of a run that occupied its thread for one turn of the event loop. */
const holdMillis = 25

/** Charges work to the run's gate, and pauses the run's connections. */
export const meteredBy = (gate: RunGate, connections: RunConnections): Metered => ({
  worked: (processorMillis) => {
    const now = performance.now()
    gate.worked(now, processorMillis)
    const pauseMillis = gate.pauseMillis(now)
    if (pauseMillis > 0) connections.pauseAll(Math.max(holdMillis, pauseMillis))
  },
  hold: () => connections.pauseAll(holdMillis)
})

export const make = (door: GatewayServerOptions): http.Server => {
  // Node takes whole numbers only.
  const headersMillis = Math.ceil(Math.min(door.headerSecondsMax, door.requestSecondsMax) * 1000)
  const server = http.createServer(
    {
      maxHeaderSize: headerBytesMax,
      headersTimeout: headersMillis,
      requestTimeout: Math.ceil(door.requestSecondsMax * 1000),
      keepAliveTimeout: 65_000,
      connectionsCheckingInterval: Math.min(
        checkMillis.max,
        Math.max(checkMillis.min, Math.ceil(headersMillis / 2))
      ),
      insecureHTTPParser: false,
      // Node would answer these itself, without a rate limit; `unreadable` checks them instead.
      requireHostHeader: false,
      noDelay: true
    },
    (request, response) => onRequest(door, request, response, unreadable(request))
  )
  server.on("checkExpectation", (request: http.IncomingMessage, response: http.ServerResponse) =>
    onRequest(door, request, response, GatewayAnswers.known("bad_request", 417))
  )
  server.on("connection", (socket: Socket) => onConnection(door, socket))
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => onMalformed(door, error, socket))
  // Without a listener, Node closes them without an answer.
  server.on("connect", (_request, socket: Socket) => {
    if (isServed(door, socket)) refuseRaw(door, socket, GatewayAnswers.known("method_not_allowed"))
  })
  // An error while listening: a connection could not be accepted, so its client gets no answer.
  server.on("error", (error) => door.refuse({ status: 503, code: "not_accepted", detail: error.message }))
  return server
}

const onConnection = (door: GatewayServerOptions, socket: Socket): void => {
  const { connections, gate, meter, metered, onCrowd, share } = door
  meter.note(metered)
  const tooMany = (detail: string) => {
    socket.destroy()
    door.refuse({ status: 503, code: "too_many_connections", detail })
  }
  if (!gate.connected(performance.now())) {
    onCrowd(crowdMillis)
    return tooMany("too many new connections in a second")
  }
  if (!share.take(1)) return tooMany(`over the run's share of connections: ${share.held()} are open`)
  socket.once("close", () => share.give(1))
  connections.add(socket)
}

/** Returns true if a request on this connection may be served. If not, the refusal is already complete. */
const isServed = (door: GatewayServerOptions, socket: Socket, slow?: () => void): boolean => {
  const { connections, gate, meter, metered } = door
  meter.note(metered)
  const verdict = gate.arrived(performance.now())
  if (verdict === "serve") return true
  if (verdict === "slow" && slow !== undefined) {
    slow()
    connections.pause(socket, slowMillis)
  } else socket.destroy()
  door.refuse({ status: 429, code: "rate", detail: "too many requests of any kind in a second" })
  return false
}

const tooManyRequests = {
  ...GatewayAnswers.known("too_many_requests"),
  retryAfterSeconds: slowMillis / 1000
}

/** Error of a request that can be parsed but is not valid HTTP/1.1. */
const unreadable = ({
  headers,
  httpVersion
}: http.IncomingMessage): GatewayAnswers.GatewayError | undefined =>
  httpVersion === "1.1" && headers.host === undefined ? GatewayAnswers.known("bad_request") : undefined

/** Charges the run for reading the discarded rest of an answered request. */
const meterRest = ({ meter, metered }: GatewayServerOptions, request: http.IncomingMessage): void => {
  if (!request.complete) request.on("data", () => meter.note(metered))
}

const onRequest = (
  door: GatewayServerOptions,
  request: http.IncomingMessage,
  response: http.ServerResponse,
  refused?: GatewayAnswers.GatewayError
): void => {
  const { socket } = request
  request.on("error", ignore)
  response.on("error", ignore)
  if (socket.destroyed) return
  response.once("finish", () => meterRest(door, request))
  const answer = (given: GatewayAnswers.Answer) =>
    Exchange.answer({ request, response, requestId: Exchange.newRequestId() }, given)
  const slow = () =>
    answer(GatewayAnswers.render(tooManyRequests, GatewayAnswers.dialectOf(request.url ?? "")))
  if (!isServed(door, socket, slow)) return
  const inTurn = door.connections.inTurn(request, response, () => {
    if (refused !== undefined) {
      response.shouldKeepAlive = false
      answer(GatewayAnswers.render(refused, "openai"))
      return door.refuse({ status: refused.status, code: refused.code, detail: refused.message })
    }
    if (Exchange.pathOf(request.url ?? "") === RoutePolicy.healthPath) return answer(GatewayAnswers.health)
    door.requests.fork(
      door.serve(request, response).pipe(
        // A defect of the gateway fails one request, and never ends the thread.
        Effect.catchDefect((thrown) =>
          Effect.sync(() => {
            door.refuse({ status: 500, code: "defect", detail: String(thrown) })
            response.destroy()
          })
        )
      )
    )
  })
  if (!inTurn) socket.destroy()
}

/** Refuses invalid HTTP: smuggled, truncated, too long or too slow. The parser has stopped, so the connection ends. */
const onMalformed = (door: GatewayServerOptions, error: NodeJS.ErrnoException, socket: Socket): void => {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy()
    return
  }
  if (!isServed(door, socket)) return
  const known =
    error.code === "ERR_HTTP_REQUEST_TIMEOUT"
      ? GatewayAnswers.known("request_timeout")
      : GatewayAnswers.known("bad_request", error.code === "HPE_HEADER_OVERFLOW" ? 431 : 400)
  refuseRaw(door, socket, known, error.code)
}

const refuseRaw = (
  door: GatewayServerOptions,
  socket: Socket,
  error: GatewayAnswers.GatewayError,
  detail?: string
): void => {
  // Node no longer handles this connection: an unhandled error would end the thread.
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
  door.refuse({ status, code: error.code, detail: detail ?? error.message })
}

const ignore = (): void => undefined
