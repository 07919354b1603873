/**
 * The second half of a call: what the upstream answers, piece by piece, until the call is settled.
 *
 * Settled exactly once, on every path: the ledger, the list of calls and the audit hear of it together.
 */
import { createHash, type Hash } from "node:crypto"
import type { IncomingMessage } from "node:http"
import * as Canary from "@cogni/sandbox-core/Canary"
import type { LlmCall, LlmOutcome, LlmUsage } from "@cogni/sandbox-core/RunResult"
import type * as Budget from "../policy/Budget.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import * as KeyInjection from "../../KeyInjection.ts"
import type { Sent } from "../policy/RequestInspection.ts"
import type { Api, Header } from "../policy/RoutePolicy.ts"
import * as Usage from "../policy/Usage.ts"
import * as ChargeRule from "../policy/ChargeRule.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import type { Exchange } from "./ModelCall.ts"

/** A call that has its place in the ledger and in the audit. */
export interface Passing {
  readonly api: Api
  readonly callId: string
  readonly requestBytes: number
  readonly sent: Sent
  readonly ticket: Budget.Ticket
}

export interface CallAnswer {
  /** The request is handed to the upstream now. */
  readonly sent: () => void
  /** The upstream's answer has begun. */
  readonly answered: (answer: IncomingMessage) => void
  /** There will be none, or no more of it. */
  readonly fail: (outcome: LlmOutcome, error: GatewayAnswers.GatewayError, detail: string) => void
  /** The client has gone away. */
  readonly gone: () => void
  readonly settled: Promise<void>
}

/** An upstream's error is read whole up to here, to take out what is not for the agent. */
const errorBytesMax = 64 * 1024

/** Of a body that is kept in the audit. */
const bodyKeptBytesMax = 1024 * 1024

/** How much of an upstream's error the audit has. */
const detailLengthMax = 500

/** Said by nginx of a client that hung up before its answer; no client hears it. */
export const statusGone = 499

export const make = (run: GatewayRun, exchange: Exchange, passing: Passing): CallAnswer => {
  const { requestId, response } = exchange
  const { promise: settled, resolve } = Promise.withResolvers<void>()
  const tally = makeTally(run, exchange, passing, resolve)
  const { settle } = tally

  const own = (outcome: LlmOutcome, error: GatewayAnswers.GatewayError, detail: string) => {
    const answer = GatewayAnswers.render(error, exchange.dialect)
    if (!response.headersSent) exchange.answer(answer)
    else response.destroy()
    settle(outcome, answer.status, KeyInjection.scrub(detail, run.shared.upstreamKey))
  }

  const passThrough = (answer: IncomingMessage, status: number) => {
    const reader = tally.read({
      api: passing.api,
      contentType: answer.headers["content-type"] ?? "",
      withholdUsage: passing.sent.usageAdded
    })
    response.writeHead(status, [
      ...visible(answer.rawHeaders, passing.sent.usageAdded),
      "x-request-id",
      requestId
    ])
    // Headers and first piece in one write, where they come together: two small ones can cost a reader 40 ms.
    const alone = setImmediate(() => response.flushHeaders())
    answer.on("data", (piece: Buffer) => {
      clearImmediate(alone)
      tally.count(piece)
      const out = reader.push(piece)
      if (out.byteLength > 0 && !response.write(out)) {
        answer.pause()
        response.once("drain", () => answer.resume())
      }
    })
    answer.once("end", () => {
      clearImmediate(alone)
      response.end(tally.readEnd()?.rest)
      settle("completed", status)
    })
  }

  /** What an upstream says when it fails may name its keys and addresses: it is read first. */
  const passError = (answer: IncomingMessage, status: number) => {
    const pieces: Array<Buffer> = []
    let bytes = 0
    answer.on("data", (piece: Buffer) => {
      if (bytes < errorBytesMax) pieces.push(piece)
      bytes += piece.byteLength
      tally.count(piece)
      if (bytes > 16 * errorBytesMax) answer.destroy()
    })
    answer.once("end", () => {
      const text = withoutHost(run, Buffer.concat(pieces).toString("utf8").slice(0, errorBytesMax))
      const detail = text.slice(0, detailLengthMax)
      if (status < 400 || status === 401 || status === 403 || status === 407)
        return own("completed", GatewayAnswers.upstreamRefused, `upstream ${status}: ${detail}`)
      response.writeHead(status, [
        ...visible(answer.rawHeaders, true),
        "x-request-id",
        requestId,
        "content-length",
        String(Buffer.byteLength(text))
      ])
      response.end(text)
      settle("completed", status, detail)
    })
  }

  return {
    sent: tally.sent,
    answered: (answer) => {
      const status = answer.statusCode ?? 502
      tally.begin(status, Usage.ofHeaders(answer.headers))
      const cut = (error?: Error) =>
        tally.isSettled()
          ? undefined
          : own(
              "upstream_cut",
              GatewayAnswers.known("upstream_unreachable", 502),
              error?.message ?? "the answer broke off"
            )
      answer.on("error", cut)
      answer.once("close", () => {
        if (!answer.complete) cut()
      })
      if (status >= 200 && status < 300) passThrough(answer, status)
      else passError(answer, status)
    },
    fail: own,
    gone: () =>
      settle(
        run.closing ? "run_ended" : "client_aborted",
        response.headersSent ? response.statusCode : statusGone
      ),
    settled
  }
}

/** What is counted of an answer, and where it goes in the end. */
const makeTally = (run: GatewayRun, exchange: Exchange, passing: Passing, onSettled: () => void) => {
  const digest = createHash("sha256")
  const kept: Array<Uint8Array> = []
  let keptBytes = 0
  let responseBytes = 0
  let upstreamStatus: number | undefined
  let firstByteMs: number | undefined
  let costUsd: number | undefined
  let sent = false
  let reader: Usage.UsageReader | undefined
  let end: Usage.AnswerEnd | undefined
  let settled = false
  const readEnd = () => (end ??= reader?.end())

  const settle = (outcome: LlmOutcome, status: number, detail?: string) => {
    if (settled) return
    settled = true
    onSettled()
    const ended = readEnd()
    const told = withCost(ended?.usage, costUsd)
    const isOk = upstreamStatus !== undefined && upstreamStatus < 300
    const usage = run.ledger.end(passing.ticket, {
      ...(told === undefined ? {} : { usage: told }),
      responseBytes,
      mayHaveRun: ChargeRule.mayHaveRun({ sent, outcome, upstreamStatus })
    })
    write(run, exchange, passing, {
      outcome,
      status,
      responseBytes,
      digest,
      body: Buffer.concat(kept),
      ...(firstByteMs === undefined ? {} : { firstByteMs }),
      ...(ended === undefined || ended.events === 0 ? {} : { events: ended.events }),
      ...(usage === undefined ? {} : { usage }),
      ...(told?.inputTokens === undefined && isOk && passing.api !== "count_tokens"
        ? { usageMissing: true }
        : {}),
      ...(detail === undefined ? {} : { detail })
    })
  }

  return {
    sent: () => {
      sent = true
    },
    begin: (status: number, cost: number | undefined) => {
      upstreamStatus = status
      costUsd = cost
    },
    read: (options: Usage.UsageReaderOptions) => (reader = Usage.makeReader(options)),
    readEnd,
    isSettled: () => settled,
    settle,
    count: (piece: Uint8Array) => {
      firstByteMs ??= millisSince(exchange.startedMs)
      responseBytes += piece.byteLength
      digest.update(piece)
      if (run.shared.auditBodies !== "full" || keptBytes >= bodyKeptBytesMax) return
      keptBytes += piece.byteLength
      kept.push(piece)
    }
  }
}

interface Settled {
  readonly outcome: LlmOutcome
  readonly status: number
  readonly responseBytes: number
  readonly digest: Hash
  readonly body: Uint8Array
  readonly firstByteMs?: number
  readonly events?: number
  readonly usage?: LlmUsage
  readonly usageMissing?: true
  readonly detail?: string
}

const write = (
  run: GatewayRun,
  exchange: Exchange,
  { callId, requestBytes, sent }: Passing,
  { body, digest, outcome, responseBytes, status, usage, ...rest }: Settled
): void => {
  const { at, path, requestId, startedMs } = exchange
  const durationMs = millisSince(startedMs)
  run.addCall({
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
  void run
    .append({
      type: "call.ended",
      requestId,
      callId,
      status,
      outcome,
      responseBytes,
      responseDigest: digest.digest("hex"),
      durationMs,
      ...(usage === undefined ? {} : { usage }),
      ...rest,
      ...bodyIfAsked(run, body)
    })
    .finally(() => {
      run.counts.active -= 1
    })
}

/** Of a request that went nowhere: what the list of calls and the audit have of it. */
export const listed = (
  { startedMs }: Exchange,
  { body }: GatewayAnswers.Answer,
  requestBytes: number
): Pick<LlmCall, "requestBytes" | "responseBytes" | "durationMs"> => ({
  requestBytes,
  responseBytes: Buffer.byteLength(body),
  durationMs: millisSince(startedMs)
})

/** Of a request that was not let through. */
export const outcomeOfRefusal = (code: string): LlmOutcome =>
  code === "client_aborted" ? "client_aborted" : "refused"

/** To a microsecond. */
export const millisSince = (startedMs: number): number =>
  Math.round((performance.now() - startedMs) * 1000) / 1000

/** Of a message's headers as Node has them, flat. */
export const pairs = (raw: ReadonlyArray<string>): ReadonlyArray<Header> =>
  Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index]!, raw[2 * index + 1]!] as const)

/** The body for the audit, where it was asked for, without what is the host's own or was planted. */
export const bodyIfAsked = (run: GatewayRun, body: Uint8Array): { readonly body?: string } => {
  if (run.shared.auditBodies !== "full") return {}
  const bytes = Math.min(body.byteLength, bodyKeptBytesMax)
  const text = Buffer.from(body.buffer, body.byteOffset, bytes).toString("utf8")
  return { body: Canary.redact(run.canaries.planted, withoutHost(run, text)) }
}

/** Of an upstream's headers, what the agent may see, flat as Node takes them. */
const visible = (raw: ReadonlyArray<string>, withoutLength: boolean): Array<string> => {
  const seen: Array<string> = []
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase()
    if (!GatewayAnswers.isHidden(name) && !(withoutLength && name === "content-length"))
      seen.push(name, raw[at + 1]!)
  }
  return seen
}

const withCost = (usage: LlmUsage | undefined, costUsd: number | undefined): LlmUsage | undefined =>
  costUsd === undefined ? usage : { ...usage, costUsd: usage?.costUsd ?? costUsd }

/** A text without the key and the address of the upstream. */
const withoutHost = ({ shared }: GatewayRun, text: string): string =>
  [shared.address.display, shared.address.authority].reduce(
    (cleaned, own) => cleaned.replaceAll(own, "[upstream]"),
    KeyInjection.scrub(text, shared.upstreamKey)
  )
