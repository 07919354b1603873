/**
 * The first half of a call of an agent to its model, from its first byte until it goes upstream.
 *
 *     read ─► inspect ─► canaries ─► budget ─► audit ─► upstream ─► answer (CallAnswer)
 */
import * as Result from "effect/Result"
import type { IncomingMessage, ServerResponse } from "node:http"
import type { AuditEntry } from "../../AuditEntry.ts"
import type * as Budget from "../policy/Budget.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import * as KeyInjection from "../../KeyInjection.ts"
import type { Sent } from "../policy/RequestInspection.ts"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import * as CallAnswer from "./CallAnswer.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import * as RequestReader from "./RequestReader.ts"

/** A request that has come to the run's socket. */
export interface Exchange {
  readonly requestId: string
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly path: string
  readonly query: string
  readonly dialect: GatewayAnswers.Dialect
  readonly at: Date
  /** Of `performance.now()`. */
  readonly startedMs: number
  readonly answer: (answer: GatewayAnswers.Answer) => void
}

export const serve = async (run: GatewayRun, exchange: Exchange, api: RoutePolicy.Api): Promise<void> => {
  const { request } = exchange
  const refuse = (error: GatewayAnswers.GatewayError, requestBytes = 0) =>
    refuseWith(run, exchange, error, requestBytes)
  if (!isJson(request)) return refuse(GatewayAnswers.unsupportedMediaType)

  const read = await RequestReader.read(request, run.shared.requestBytesMax, run.reading)
  if (read._tag !== "Body") return refuseUnread(run, exchange, read._tag)
  const requestBytes = read.body.byteLength
  let grownBytes = 0
  try {
    const betas = RoutePolicy.betas(CallAnswer.pairs(request.rawHeaders))
    const inspection = await Promise.resolve(
      run.shared.inspector.inspect(run, {
        body: read.body,
        policy: run.policyOf(api, betas),
        canaries: run.canaries.planted
      })
    ).catch(() => undefined)
    if (inspection === undefined) return refuse(GatewayAnswers.inspectionFailed, requestBytes)
    for (const sighting of inspection.sightings)
      run.suspect({ ...sighting, channel: "prompt", requestId: exchange.requestId })
    if (inspection.sightings.length > 0 && run.canaries.policy === "stop")
      return refuse(GatewayAnswers.exfiltration, requestBytes)
    if (inspection.outcome._tag === "Refused") return refuse(inspection.outcome.refused, requestBytes)
    const { sent } = inspection.outcome
    // Numbers grow when they are written out, and what goes out is held as long as the call lasts.
    const moreBytes = Math.max(0, sent.body.byteLength - requestBytes)
    if (!run.reading.share.take(moreBytes)) return refuse(GatewayAnswers.busy, requestBytes)
    grownBytes = moreBytes
    await pass(run, exchange, { api, betas, requestBytes, requestDigest: inspection.digest, sent })
  } finally {
    run.reading.share.give(grownBytes)
    read.release()
  }
}

interface Inspected {
  readonly api: RoutePolicy.Api
  readonly betas: ReadonlyArray<string>
  readonly requestBytes: number
  readonly requestDigest: string
  readonly sent: Sent
}

const pass = async (run: GatewayRun, exchange: Exchange, inspected: Inspected): Promise<void> => {
  const { response } = exchange
  const { api, requestBytes, sent } = inspected
  const callId = crypto.randomUUID()
  const headers = headersOf(run, exchange, inspected, callId)
  // Looked at when the socket was made; it cannot have become unusable.
  if (headers === undefined) return refuseWith(run, exchange, GatewayAnswers.upstreamRefused, requestBytes)
  const ticket = run.ledger.begin({
    model: sent.model,
    requestBytes: sent.body.byteLength,
    inputTokensMax: sent.inputTokensMax,
    cachesForHour: sent.cachesForHour,
    ...(sent.outputTokensMax === undefined ? {} : { outputTokensMax: sent.outputTokensMax }),
    ...(api === "count_tokens" ? { free: true } : {})
  })
  if ("exhaustion" in ticket) {
    run.spent(ticket)
    return refuseWith(run, exchange, ofBudget(ticket), requestBytes)
  }
  run.counts.active += 1
  const written = await run.append(started(run, exchange, inspected, callId))
  const call = CallAnswer.make(run, exchange, { api, callId, requestBytes, sent, ticket })
  // A call that cannot be written down does not happen.
  if (!written) return call.fail("run_ended", GatewayAnswers.busy, "the audit could not be written")
  if (response.destroyed) return call.gone()

  call.sent()
  const breakOff = run.shared.client.send(
    `${exchange.path}${exchange.query === "" ? "" : `?${exchange.query}`}`,
    headers,
    sent.body,
    {
      onAnswer: call.answered,
      onFailure: (failure, detail) =>
        call.fail(
          failure,
          failure === "upstream_timeout"
            ? GatewayAnswers.known("upstream_timeout")
            : GatewayAnswers.known("upstream_unreachable", 502),
          detail
        )
    }
  )
  response.once("close", () => {
    if (response.writableFinished) return
    call.gone()
    breakOff()
  })
  // What the call holds in memory is let go of only then.
  await call.settled
}

const headersOf = (
  run: GatewayRun,
  { request }: Exchange,
  { betas }: Inspected,
  callId: string
): ReadonlyArray<RoutePolicy.Header> | undefined => {
  const headers = KeyInjection.inject({
    upstreamKey: run.shared.upstreamKey,
    identity: run.llm.identity,
    runId: run.runId,
    client: CallAnswer.pairs(request.rawHeaders),
    callId,
    keyHeader: run.shared.keyHeader
  })
  if (Result.isFailure(headers)) return undefined
  return betas.length === 0 ? headers.success : [...headers.success, ["anthropic-beta", betas.join(",")]]
}

const started = (
  run: GatewayRun,
  { path, requestId }: Exchange,
  { api, requestBytes, requestDigest, sent }: Inspected,
  callId: string
): AuditEntry => ({
  type: "call.started",
  requestId,
  callId,
  method: "POST",
  path,
  api,
  model: sent.model,
  ...(sent.modelRequested === undefined ? {} : { modelRequested: sent.modelRequested }),
  stream: sent.stream,
  requestBytes,
  requestDigest,
  sentBytes: sent.body.byteLength,
  sentDigest: sent.digest,
  dropped: sent.dropped,
  droppedTotal: sent.droppedTotal,
  inputTokensMax: sent.inputTokensMax,
  ...(sent.cachesForHour ? { cachesForHour: true as const } : {}),
  ...(sent.outputTokensMax === undefined ? {} : { outputTokensMax: sent.outputTokensMax }),
  ...CallAnswer.bodyIfAsked(run, sent.body)
})

/** Why a body was not read. */
export const refuseUnread = (
  run: GatewayRun,
  exchange: Exchange,
  why: Exclude<RequestReader.Read["_tag"], "Body">
): void => {
  // What else it sends is not read: the connection ends with the answer.
  if (why === "Stalled" || why === "NoRoom") exchange.response.shouldKeepAlive = false
  refuseWith(run, exchange, unread[why], 0)
}

const unread: Readonly<Record<Exclude<RequestReader.Read["_tag"], "Body">, GatewayAnswers.GatewayError>> = {
  TooLarge: GatewayAnswers.known("request_too_large"),
  NoRoom: GatewayAnswers.busy,
  Stalled: GatewayAnswers.known("request_timeout"),
  Aborted: { ...GatewayAnswers.known("bad_request"), code: "client_aborted" }
}

export const refuseWith = (
  run: GatewayRun,
  exchange: Exchange,
  error: GatewayAnswers.GatewayError,
  requestBytes: number
): void => {
  const { dialect, path, request, requestId } = exchange
  const answer = GatewayAnswers.render(error, dialect)
  exchange.answer(answer)
  const call = CallAnswer.listed(exchange, answer, requestBytes)
  run.addCall({
    at: exchange.at.toISOString(),
    requestId,
    method: request.method ?? "",
    path,
    status: answer.status,
    ...call,
    completed: true,
    outcome: CallAnswer.outcomeOfRefusal(error.code)
  })
  run.refuse({
    requestId,
    method: request.method ?? "",
    path,
    status: answer.status,
    code: error.code,
    detail: error.param === undefined ? error.message : `${error.param}: ${error.message}`,
    call
  })
}

export const ofBudget = ({
  detail,
  exhaustion,
  final,
  retryAfterSeconds
}: Budget.Refusal): GatewayAnswers.GatewayError => ({
  status: 429,
  code: final ? "insufficient_quota" : `${exhaustion.budget}_exceeded`,
  message: detail,
  final,
  ...(final ? {} : { retryAfterSeconds: retryAfterSeconds ?? 1 })
})

const isJson = ({ headers }: IncomingMessage): boolean =>
  /^application\/json\s*(?:;|$)/iu.test(headers["content-type"] ?? "") &&
  (headers["content-encoding"] ?? "identity").toLowerCase() === "identity"
