/** A request on a run's socket, and its response. */
import { randomUUID } from "node:crypto"
import type { IncomingMessage, ServerResponse } from "node:http"
import type { LlmCall, LlmOutcome } from "@cogni/sandbox-core/RunFigures"
import type { UpstreamKey } from "../../KeyInjection.ts"
import type { Header } from "../policy/RoutePolicy.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"

export interface Exchange {
  readonly requestId: string
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly method: string
  /** Without the query. */
  readonly path: string
  readonly dialect: GatewayAnswers.Dialect
  readonly at: Date
  /** Value of `performance.now()`. */
  readonly startedMs: number
  /** Credentials that were sent for it, which no text of the upstream may reveal. */
  readonly secrets: Array<UpstreamKey>
}

export const make = (request: IncomingMessage, response: ServerResponse): Exchange => {
  const path = pathOf(request.url ?? "")
  return {
    requestId: newRequestId(),
    request,
    response,
    method: (request.method ?? "").slice(0, 16),
    path,
    dialect: GatewayAnswers.dialectOf(path),
    at: new Date(),
    startedMs: performance.now(),
    secrets: []
  }
}

/** Creates a request ID in nginx's format: 32 hexadecimal digits. */
export const newRequestId = (): string => randomUUID().replaceAll("-", "")

/** Returns a request target without its query. */
export const pathOf = (target: string): string => {
  const mark = target.indexOf("?")
  return mark === -1 ? target : target.slice(0, mark)
}

/** Sends an answer and discards the rest of the request: a client that only sends would never read the answer. */
export const answer = (
  { request, requestId, response }: Pick<Exchange, "request" | "response" | "requestId">,
  { body, headers, status }: GatewayAnswers.Answer
): void => {
  if (response.headersSent || response.destroyed) return
  response.writeHead(status, {
    ...headers,
    "x-request-id": requestId,
    "content-length": String(Buffer.byteLength(body))
  })
  response.end(body)
  request.resume()
}

/** Entry in the run's list of calls for a request that did not go upstream. */
export const listed = (
  { at, method, path, requestId, startedMs }: Exchange,
  { body, status }: GatewayAnswers.Answer,
  outcome: LlmOutcome,
  requestBytes = 0
): LlmCall => ({
  at: at.toISOString(),
  requestId,
  method,
  path,
  status,
  requestBytes,
  responseBytes: Buffer.byteLength(body),
  durationMs: millisSince(startedMs),
  completed: true,
  outcome
})

/** Milliseconds since `startedMs`, rounded to a microsecond. */
export const millisSince = (startedMs: number): number =>
  Math.round((performance.now() - startedMs) * 1000) / 1000

/** Converts Node's flat array of headers to pairs. */
export const pairs = (raw: ReadonlyArray<string>): ReadonlyArray<Header> =>
  Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index]!, raw[2 * index + 1]!] as const)
