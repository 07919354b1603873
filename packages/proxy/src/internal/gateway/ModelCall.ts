/**
 * An agent's call to its model, from its first byte until it is settled.
 *
 *     read ─► inspect ─► canaries ─► key ─► budget ─► audit ─► upstream ─► answer ─► settled
 *
 * A call in the ledger is settled exactly once: the ledger, the list of calls and the audit record the same end
 * together.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Result from "effect/Result"
import type { IncomingMessage } from "node:http"
import * as Canary from "@cogni/sandbox-core/Canary"
import type { AuditDraft } from "../audit/AuditChain.ts"
import type * as Budget from "../policy/Budget.ts"
import type { BodyPolicy } from "../policy/BodyRules.ts"
import * as ChargeRule from "../policy/ChargeRule.ts"
import * as KeyInjection from "../../KeyInjection.ts"
import * as UpstreamProfile from "../../UpstreamProfile.ts"
import type { Sent } from "../policy/RequestInspection.ts"
import * as RoutePolicy from "../policy/RoutePolicy.ts"
import * as SubagentShare from "../policy/SubagentShare.ts"
import * as CallAnswer from "./CallAnswer.ts"
import type * as CallDrains from "./CallDrains.ts"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import * as RequestReader from "./RequestReader.ts"
import { RequestRefused } from "./RequestRefused.ts"
import * as RunShare from "./RunShare.ts"
import type { SigningRequest } from "./UpstreamKeys.ts"

interface CallRequest {
  readonly api: RoutePolicy.Api
  /** Query of its target, without the question mark. */
  readonly query: string
}

export const serve = (run: GatewayRun, exchange: Exchange.Exchange, called: CallRequest) =>
  Effect.suspend(() => {
    // Nothing is held yet, so an interruption before the call begins loses nothing.
    const held = RunShare.holding(run.reading.share)
    return Effect.ensuring(passRead(run, exchange, called, held), Effect.sync(held.release))
  })

const passRead = Effect.fnUntraced(function* (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  called: CallRequest,
  held: RunShare.Held
) {
  const { request } = exchange
  if (!isJson(request)) return yield* refused(GatewayAnswers.unsupportedMediaType)
  const body = yield* RequestReader.read(request, run.shared.requestBytesMax, run.reading, held)
  const requestBytes = body.byteLength
  const readMs = performance.now()
  const client = Exchange.pairs(request.rawHeaders)
  const { profile } = run.shared
  const betas = profile.clientHeaders.includes("anthropic-beta") ? RoutePolicy.betas(client) : []
  const isSubagent = SubagentShare.marksSubagent(client)
  const policy = run.policyOf(called.api, betas, isSubagent)
  const { digest, sent } = yield* inspect(run, exchange, policy, body)
  // Numbers can grow when they are written out, and the sent body is held as long as the call lasts.
  if (!held.take(Math.max(0, sent.body.byteLength - requestBytes)))
    return yield* refused(GatewayAnswers.busy, requestBytes)
  const callId = crypto.randomUUID()
  yield* pass(run, exchange, {
    ...called,
    betas,
    client,
    callId,
    isSubagent,
    requestBytes,
    requestDigest: digest,
    readMs,
    sent
  })
})

const refused = (error: GatewayAnswers.GatewayError, requestBytes = 0) =>
  Effect.fail(new RequestRefused({ error, requestBytes }))

const inspect = (
  run: GatewayRun,
  { requestId }: Exchange.Exchange,
  policy: BodyPolicy,
  body: Uint8Array
): Effect.Effect<{ readonly digest: string; readonly sent: Sent }, RequestRefused> => {
  const bytes = body.byteLength
  return run.shared.inspector.inspect(run, { body, policy, canaries: run.canaries.planted }).pipe(
    Effect.matchEffect({
      onFailure: (error) => {
        if (error._tag === "InspectionFailed") return refused(GatewayAnswers.inspectionFailed, bytes)
        run.trouble({ detail: error.detail, remedy: error.remedy })
        return refused(GatewayAnswers.inspectorMissing, bytes)
      },
      onSuccess: ({ digest, outcome, sightings }) => {
        for (const sighting of sightings) run.suspect({ ...sighting, channel: "prompt", requestId })
        if (sightings.length > 0 && run.canaries.policy === "stop")
          return refused(GatewayAnswers.exfiltration, bytes)
        return outcome._tag === "Refused"
          ? refused(outcome.refused, bytes)
          : Effect.succeed({ digest, sent: outcome.sent })
      }
    })
  )
}

interface Call extends CallRequest {
  readonly betas: ReadonlyArray<string>
  /** The agent's headers. */
  readonly client: ReadonlyArray<RoutePolicy.Header>
  readonly callId: string
  readonly isSubagent: boolean
  readonly requestBytes: number
  readonly requestDigest: string
  /** When the request was read whole. */
  readonly readMs: number
  readonly sent: Sent
}

const pass = Effect.fnUntraced(function* (run: GatewayRun, exchange: Exchange.Exchange, call: Call) {
  const { headers, keyVersion } = yield* headersOf(run, exchange, call)
  const count = CallAnswer.makeCount(run, exchange.startedMs)
  let isSent = false
  let gatewayMs: number | undefined
  yield* Effect.acquireUseRelease(
    Effect.suspend(() => begun(run, call)),
    ({ drain, ticket }) =>
      Effect.flatMap(run.audit.append(started(run, exchange, call, ticket)), (isWritten) => {
        // A call that cannot be audited must not happen.
        if (!isWritten)
          return Effect.succeed(
            CallAnswer.fail(exchange, "run_ended", GatewayAnswers.busy, "the audit could not be written")
          )
        if (exchange.response.destroyed) return Effect.succeed(hungUp(exchange))
        isSent = true
        gatewayMs = Exchange.millisSince(call.readMs)
        const { response } = exchange
        response.once("close", () => {
          if (!response.writableFinished) drain.left()
        })
        return answered(run, exchange, call, { headers, count, drain })
      }),
    ({ drain, ticket }, exit) =>
      Effect.sync(() => {
        const counted = count.read()
        if (counted.upstreamStatus === 401 && keyVersion !== undefined) run.shared.keys.refused(keyVersion)
        const drained = drain.drained()
        const end = endOf(exchange, drained, exit)
        settle(run, exchange, call, { ticket, counted, end, drained, isSent, gatewayMs })
        drain.end()
      })
  )
})

/** Reserves the maximum cost of a call. The caller must settle it. */
const begun = (run: GatewayRun, { api, isSubagent, requestBytes, sent }: Call) => {
  const call = {
    isSubagent,
    model: sent.model,
    requestBytes: sent.body.byteLength,
    inputTokensMax: sent.inputTokensMax,
    cachesForHour: sent.cachesForHour,
    ...(sent.outputTokensMax === undefined ? {} : { outputTokensMax: sent.outputTokensMax }),
    ...(api === "count_tokens" ? { free: true } : {})
  }
  const ticket = run.ledger.begin(call, performance.now())
  if (!("exhaustion" in ticket))
    return Effect.withFiber((fiber) =>
      // Counting tokens costs nothing, so nothing can be learned from its answer.
      Effect.succeed({
        ticket,
        drain: run.drains.open(() => fiber.interruptUnsafe(), { reads: api !== "count_tokens" })
      })
    )
  run.spent(ticket)
  return refused(GatewayAnswers.ofBudget(ticket), requestBytes)
}

interface Outgoing {
  readonly headers: ReadonlyArray<RoutePolicy.Header>
  readonly count: CallAnswer.AnswerCount
  readonly drain: CallDrains.CallDrain
}

/** Sends a call to the upstream, and the answer to the agent. */
const answered = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  { api, query, sent }: Call,
  { count, drain, headers }: Outgoing
): Effect.Effect<CallAnswer.CallEnd> =>
  run.shared.client.send(targetOf(run, { api, query, sent }), headers, sent.body).pipe(
    Effect.flatMap((answer) =>
      CallAnswer.pass(run, exchange, { answer, count, drain }, { api, withholdUsage: sent.usageAdded })
    ),
    Effect.catchTag("UpstreamFailed", ({ detail, outcome }) =>
      Effect.sync(() =>
        CallAnswer.fail(
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

/** Path and query of a call, after the path of the upstream's URL. */
const targetOf = (
  { shared }: GatewayRun,
  { api, query, sent }: Pick<Call, "api" | "query" | "sent">
): string => UpstreamProfile.targetOf(shared.profile, { api, query, model: sent.model })

/** The end of a call whose client has disconnected, or whose run has ended. */
const hungUp = ({ response }: Exchange.Exchange, drained?: CallDrains.Drained): CallAnswer.CallEnd => ({
  outcome: drained?.reason ?? (response.destroyed ? "client_aborted" : "run_ended"),
  status: response.headersSent ? response.statusCode : CallAnswer.statusGone,
  detail: drained?.cutBy
})

/** The end of a call. If its agent has gone, it is not completed, however the upstream answered. */
const endOf = (
  exchange: Exchange.Exchange,
  drained: CallDrains.Drained | undefined,
  exit: Exit.Exit<CallAnswer.CallEnd>
): CallAnswer.CallEnd => {
  if (!Exit.isSuccess(exit)) return hungUp(exchange, drained)
  if (drained === undefined) return exit.value
  const { detail, outcome } = exit.value
  const gone = hungUp(exchange, drained)
  // A failure of the upstream determines what is charged.
  return { ...gone, outcome: outcome === "completed" ? gone.outcome : outcome, detail }
}

interface Ended {
  readonly ticket: Budget.Ticket
  readonly counted: CallAnswer.Counted
  readonly end: CallAnswer.CallEnd
  readonly drained: CallDrains.Drained | undefined
  readonly isSent: boolean
  /** Time from the whole request to its sending. */
  readonly gatewayMs: number | undefined
}

const settle = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  { api, callId, requestBytes, sent }: Call,
  { counted, drained, end: { detail, outcome, status }, gatewayMs, isSent, ticket }: Ended
): void => {
  const { at, path, requestId, startedMs } = exchange
  const { body, costUsd, end, firstByteMs, responseBytes, responseDigest, upstreamCallId, upstreamStatus } =
    counted
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
    ...(upstreamCallId === undefined ? {} : { upstreamCallId }),
    requestBytes,
    responseBytes,
    durationMs,
    completed: outcome === "completed",
    outcome,
    model: sent.model,
    ...(gatewayMs === undefined ? {} : { gatewayMs }),
    ...(usage === undefined ? {} : { usage })
  })
  run.audit.note({
    type: "call.ended",
    requestId,
    callId,
    upstreamCallId,
    status,
    outcome,
    responseBytes,
    responseDigest,
    durationMs,
    usage,
    firstByteMs,
    gatewayMs,
    events: end === undefined || end.events === 0 ? undefined : end.events,
    usageMissing: told?.inputTokens === undefined && isOk && api !== "count_tokens" ? true : undefined,
    drained: drained && { bytes: drained.bytes, durationMs: drained.durationMs },
    detail,
    body: keptBody(run, exchange, body)
  })
}

/** Headers of a call, with its credential. Its key may have to be asked for. */
const headersOf = Effect.fnUntraced(function* (run: GatewayRun, exchange: Exchange.Exchange, call: Call) {
  const { keys, profile } = run.shared
  const { callId, client, requestBytes } = call
  const { llm } = run
  if (llm === undefined) return yield* refused(GatewayAnswers.noModel, requestBytes)
  const unavailable = (detail: string, isRetryable: boolean) =>
    refused(GatewayAnswers.keyUnavailable(detail, isRetryable), requestBytes)
  const injected = (upstreamKey: KeyInjection.UpstreamKey | undefined) =>
    KeyInjection.inject({
      profile,
      upstreamKey,
      identity: llm.identity,
      runId: run.runId,
      client,
      callId
    }).pipe(
      Result.map((headers): ReadonlyArray<RoutePolicy.Header> => [
        ...headers,
        ...(call.betas.length === 0 ? [] : [["anthropic-beta", call.betas.join(",")] as const]),
        ...(run.traceparent === undefined ? [] : [["traceparent", run.traceparent] as const])
      ])
    )
  const usable = (headers: ReturnType<typeof injected>) =>
    Result.isFailure(headers) ? unavailable(headers.failure.detail, false) : Effect.succeed(headers.success)

  if (keys.kind !== "signed") {
    const found = yield* keys.current(run.askKey)
    if ("_tag" in found) return yield* unavailable(found.detail, found.isRetryable)
    exchange.secrets.push(found.key)
    return { headers: yield* usable(injected(found.key)), keyVersion: found.version }
  }
  const unsigned = yield* usable(injected(undefined))
  const told = yield* run.askKey({ type: "sign", request: signingRequest(run, call, unsigned) })
  if (told._tag === "Unavailable") return yield* unavailable(told.detail, told.isRetryable)
  if (told._tag === "Key") return yield* unavailable("no signature", false)
  const signature = told.headers.map(([name, value]) => [name, KeyInjection.received(value)] as const)
  exchange.secrets.push(...signature.map(([, value]) => value))
  return { headers: yield* usable(KeyInjection.signed(unsigned, signature)), keyVersion: undefined }
})

const signingRequest = (
  run: GatewayRun,
  call: Call,
  headers: ReadonlyArray<RoutePolicy.Header>
): SigningRequest => ({
  method: "POST",
  authority: run.shared.address.authority,
  target: `${run.shared.address.basePath}${targetOf(run, call)}`,
  headers,
  bodySha256: call.sent.digest,
  bodyBytes: call.sent.body.byteLength
})

const started = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  { api, callId, isSubagent, requestBytes, requestDigest, sent }: Call,
  { costUsdMax }: Budget.Ticket
): AuditDraft => ({
  type: "call.started",
  requestId: exchange.requestId,
  callId,
  method: "POST",
  path: exchange.path,
  api,
  model: sent.model,
  modelRequested: sent.modelRequested,
  stream: sent.stream,
  subagent: isSubagent ? true : undefined,
  requestBytes,
  requestDigest,
  sentBytes: sent.body.byteLength,
  sentDigest: sent.digest,
  dropped: sent.dropped,
  droppedTotal: sent.droppedTotal,
  inputTokensMax: sent.inputTokensMax,
  cachesForHour: sent.cachesForHour ? true : undefined,
  outputTokensMax: sent.outputTokensMax,
  costUsdMax,
  body: keptBody(run, exchange, sent.body)
})

/** Body for the audit if bodies are kept, without the host's secrets and canaries. */
const keptBody = (run: GatewayRun, exchange: Exchange.Exchange, body: Uint8Array): string | undefined => {
  if (run.shared.auditBodies !== "full") return undefined
  const bytes = Math.min(body.byteLength, CallAnswer.bodyKeptBytesMax)
  const text = Buffer.from(body.buffer, body.byteOffset, bytes).toString("utf8")
  return Canary.redact(run.canaries.planted, CallAnswer.withoutHost(run, exchange, text))
}

const isJson = ({ headers }: IncomingMessage): boolean =>
  /^application\/json\s*(?:;|$)/iu.test(headers["content-type"] ?? "") &&
  (headers["content-encoding"] ?? "identity").toLowerCase() === "identity"
