/**
 * A call of an agent to its model, from its first byte until it is settled.
 *
 *     read ─► inspect ─► canaries ─► budget ─► audit ─► upstream ─► answer ─► settled
 *
 * A call that has its place in the ledger is settled exactly once, with one end: the ledger, the list of calls and the
 * audit hear of it together.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type { IncomingMessage } from "node:http"
import * as Canary from "@cogni/sandbox-core/Canary"
import type { LlmOutcome } from "@cogni/sandbox-core/RunResult"
import type { AuditDraft } from "../audit/AuditChain.ts"
import type * as Budget from "../policy/Budget.ts"
import * as ChargeRule from "../policy/ChargeRule.ts"
import * as KeyInjection from "../../KeyInjection.ts"
import type { Sent } from "../policy/RequestInspection.ts"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import * as CallAnswer from "./CallAnswer.ts"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import * as RequestReader from "./RequestReader.ts"
import { RequestRefused } from "./RequestRefused.ts"

export interface CallRequest {
  readonly api: RoutePolicy.Api
  /** Of its target, without the question mark. */
  readonly query: string
}

export const serve = (run: GatewayRun, exchange: Exchange.Exchange, called: CallRequest) =>
  Effect.gen(function* () {
    const { request } = exchange
    if (!isJson(request)) return yield* refused(GatewayAnswers.unsupportedMediaType)
    const read = yield* RequestReader.read(request, run.shared.requestBytesMax, run.reading)
    const { digest, sent } = yield* inspect(run, exchange, called.api, read)
    // Numbers grow when they are written out, and what goes out is held as long as the call lasts.
    const moreBytes = Math.max(0, sent.body.byteLength - read.bytes)
    if (!run.reading.share.take(moreBytes)) return yield* refused(GatewayAnswers.busy, read.bytes)
    yield* Effect.addFinalizer(() => Effect.sync(() => run.reading.share.give(moreBytes)))
    yield* pass(run, exchange, {
      ...called,
      callId: crypto.randomUUID(),
      requestBytes: read.bytes,
      requestDigest: digest,
      sent
    })
  }).pipe(Effect.scoped)

const refused = (error: GatewayAnswers.GatewayError, requestBytes = 0) =>
  Effect.fail(new RequestRefused({ error, requestBytes }))

const inspect = Effect.fnUntraced(function* (
  run: GatewayRun,
  { request, requestId }: Exchange.Exchange,
  api: RoutePolicy.Api,
  { body, bytes }: RequestReader.RequestBytes
) {
  const inspection = yield* run.shared.inspector
    .inspect(run, {
      body,
      policy: run.policyOf(api, betasOf(request)),
      canaries: run.canaries.planted
    })
    .pipe(Effect.catchTag("InspectionFailed", () => refused(GatewayAnswers.inspectionFailed, bytes)))
  for (const sighting of inspection.sightings) run.suspect({ ...sighting, channel: "prompt", requestId })
  if (inspection.sightings.length > 0 && run.canaries.policy === "stop")
    return yield* refused(GatewayAnswers.exfiltration, bytes)
  if (inspection.outcome._tag === "Refused") return yield* refused(inspection.outcome.refused, bytes)
  return { digest: inspection.digest, sent: inspection.outcome.sent }
})

interface Call extends CallRequest {
  readonly callId: string
  readonly requestBytes: number
  readonly requestDigest: string
  readonly sent: Sent
}

const pass = Effect.fnUntraced(function* (run: GatewayRun, exchange: Exchange.Exchange, call: Call) {
  const { api, requestBytes, sent } = call
  const headers = headersOf(run, exchange, call)
  // Looked at when the socket was made; it cannot have become unusable.
  if (headers === undefined) return yield* refused(GatewayAnswers.upstreamRefused, requestBytes)
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
    return yield* refused(ofBudget(ticket), requestBytes)
  }
  const count = CallAnswer.makeCount(run, exchange.startedMs)
  let isSent = false
  const settleWith = (end: CallAnswer.CallEnd) =>
    settle(run, exchange, call, ticket, count.read(), end, isSent)
  yield* Effect.suspend(() => run.audit.append(started(run, exchange, call))).pipe(
    Effect.flatMap((isWritten) => {
      // A call that cannot be written down does not happen.
      if (!isWritten)
        return Effect.succeed(
          CallAnswer.fail(run, exchange, "run_ended", GatewayAnswers.busy, "the audit could not be written")
        )
      if (exchange.response.destroyed) return Effect.succeed(hungUp(exchange, "client_aborted"))
      isSent = true
      return Effect.raceFirst(answered(run, exchange, call, headers, count), clientGone(exchange))
    }),
    Effect.onInterrupt(() => Effect.sync(() => settleWith(hungUp(exchange, "run_ended")))),
    Effect.map(settleWith)
  )
})

/** Send it to the upstream, and its answer to the agent. */
const answered = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  { api, query, sent }: Call,
  headers: ReadonlyArray<RoutePolicy.Header>,
  count: CallAnswer.AnswerCount
): Effect.Effect<CallAnswer.CallEnd> =>
  run.shared.client.send(`${exchange.path}${query === "" ? "" : `?${query}`}`, headers, sent.body).pipe(
    Effect.flatMap((answer) =>
      CallAnswer.pass(run, exchange, answer, count, { api, withholdUsage: sent.usageAdded })
    ),
    Effect.catchTag("UpstreamFailed", ({ detail, outcome }) =>
      Effect.sync(() =>
        CallAnswer.fail(
          run,
          exchange,
          outcome,
          outcome === "upstream_timeout"
            ? GatewayAnswers.known("upstream_timeout")
            : GatewayAnswers.known("upstream_unreachable", 502),
          detail
        )
      )
    )
  )

const clientGone = (exchange: Exchange.Exchange): Effect.Effect<CallAnswer.CallEnd> =>
  Effect.callback((resume) => {
    const { response } = exchange
    const onClose = () => {
      if (!response.writableFinished) resume(Effect.succeed(hungUp(exchange, "client_aborted")))
    }
    response.once("close", onClose)
    return Effect.sync(() => response.off("close", onClose))
  })

const hungUp = ({ response }: Exchange.Exchange, outcome: LlmOutcome): CallAnswer.CallEnd => ({
  outcome,
  status: response.headersSent ? response.statusCode : CallAnswer.statusGone
})

const settle = (
  run: GatewayRun,
  { at, path, requestId, startedMs }: Exchange.Exchange,
  { api, callId, requestBytes, sent }: Call,
  ticket: Budget.Ticket,
  counted: CallAnswer.Counted,
  { detail, outcome, status }: CallAnswer.CallEnd,
  isSent: boolean
): void => {
  const { body, costUsd, end, firstByteMs, responseBytes, responseDigest, upstreamStatus } = counted
  const told = costUsd === undefined ? end?.usage : { ...end?.usage, costUsd: end?.usage?.costUsd ?? costUsd }
  const usage = run.ledger.end(ticket, {
    ...(told === undefined ? {} : { usage: told }),
    responseBytes,
    mayHaveRun: ChargeRule.mayHaveRun({ sent: isSent, outcome, upstreamStatus })
  })
  const isOk = upstreamStatus !== undefined && upstreamStatus < 300
  const durationMs = Exchange.millisSince(startedMs)
  run.traffic.call({
    at: at.toISOString(),
    requestId,
    method: "POST",
    path,
    status,
    callId,
    requestBytes,
    responseBytes,
    durationMs,
    completed: outcome === "completed",
    outcome,
    model: sent.model,
    ...(usage === undefined ? {} : { usage })
  })
  run.audit.note({
    type: "call.ended",
    requestId,
    callId,
    status,
    outcome,
    responseBytes,
    responseDigest,
    durationMs,
    usage,
    firstByteMs,
    events: end === undefined || end.events === 0 ? undefined : end.events,
    usageMissing: told?.inputTokens === undefined && isOk && api !== "count_tokens" ? true : undefined,
    detail,
    body: keptBody(run, body)
  })
}

const headersOf = (
  run: GatewayRun,
  { request }: Exchange.Exchange,
  { callId }: Call
): ReadonlyArray<RoutePolicy.Header> | undefined => {
  const betas = betasOf(request)
  const headers = KeyInjection.inject({
    upstreamKey: run.shared.upstreamKey,
    identity: run.llm.identity,
    runId: run.runId,
    client: Exchange.pairs(request.rawHeaders),
    callId,
    keyHeader: run.shared.keyHeader
  })
  if (Result.isFailure(headers)) return undefined
  return betas.length === 0 ? headers.success : [...headers.success, ["anthropic-beta", betas.join(",")]]
}

const started = (
  run: GatewayRun,
  { path, requestId }: Exchange.Exchange,
  { api, callId, requestBytes, requestDigest, sent }: Call
): AuditDraft => ({
  type: "call.started",
  requestId,
  callId,
  method: "POST",
  path,
  api,
  model: sent.model,
  modelRequested: sent.modelRequested,
  stream: sent.stream,
  requestBytes,
  requestDigest,
  sentBytes: sent.body.byteLength,
  sentDigest: sent.digest,
  dropped: sent.dropped,
  droppedTotal: sent.droppedTotal,
  inputTokensMax: sent.inputTokensMax,
  cachesForHour: sent.cachesForHour ? true : undefined,
  outputTokensMax: sent.outputTokensMax,
  body: keptBody(run, sent.body)
})

/** A body for the audit, where it was asked for, without what is the host's own or was planted. */
const keptBody = (run: GatewayRun, body: Uint8Array): string | undefined => {
  if (run.shared.auditBodies !== "full") return undefined
  const bytes = Math.min(body.byteLength, CallAnswer.bodyKeptBytesMax)
  const text = Buffer.from(body.buffer, body.byteOffset, bytes).toString("utf8")
  return Canary.redact(run.canaries.planted, CallAnswer.withoutHost(run, text))
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
  retryAfterSeconds: final ? undefined : (retryAfterSeconds ?? 1)
})

const betasOf = ({ rawHeaders }: IncomingMessage): ReadonlyArray<string> =>
  RoutePolicy.betas(Exchange.pairs(rawHeaders))

const isJson = ({ headers }: IncomingMessage): boolean =>
  /^application\/json\s*(?:;|$)/iu.test(headers["content-type"] ?? "") &&
  (headers["content-encoding"] ?? "identity").toLowerCase() === "identity"
