/**
 * Passes the upstream's answer to the agent, and counts it piece by piece.
 *
 * Pieces go from one Node stream to the other within Node's callbacks, because that is fast: an event reaches the agent
 * in the turn of the event loop in which it arrived.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { createHash } from "node:crypto"
import type { IncomingMessage, ServerResponse } from "node:http"
import * as Effect from "effect/Effect"
import type { LlmOutcome } from "@cogni/sandbox-core/RunFigures"
import * as KeyInjection from "../../KeyInjection.ts"
import * as GenerationId from "../policy/GenerationId.ts"
import * as KeyBudget from "../policy/KeyBudget.ts"
import type { Api } from "../policy/RoutePolicy.ts"
import * as Usage from "../policy/Usage.ts"
import type { CallDrain } from "./CallDrains.ts"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import { UpstreamFailed } from "./UpstreamClient.ts"

/** How a call ended. */
export interface CallEnd {
  readonly outcome: LlmOutcome
  /** HTTP status sent to the agent, or `statusGone`. */
  readonly status: number
  readonly detail?: string | undefined
}

/** Size up to which an upstream error is kept, to remove what the agent must not see. */
const errorBytesMax = 64 * 1024

/** Maximum size of a body that the audit keeps. */
export const bodyKeptBytesMax = 1024 * 1024

/** Characters of an upstream error that the audit keeps. */
const detailLengthMax = 500

/** Status of a call that ended before its answer, as in nginx's log if the client disconnected. Never sent. */
export const statusGone = 499

/** Counts an answer. */
export interface AnswerCount {
  readonly begin: (answer: IncomingMessage, options: Omit<Usage.UsageReaderOptions, "contentType">) => void
  /** Counts a piece, and returns the bytes of it that the agent gets. */
  readonly piece: (piece: Uint8Array) => Uint8Array
  /** Returns the remaining bytes for the agent at the end of the answer. */
  readonly rest: () => Uint8Array | undefined
  readonly read: () => Counted
}

export interface Counted {
  readonly upstreamStatus: number | undefined
  readonly costUsd: number | undefined
  readonly firstByteMs: number | undefined
  readonly responseBytes: number
  readonly responseDigest: string
  readonly body: Uint8Array
  readonly end: Usage.AnswerEnd | undefined
  /** The upstream's own ID of the call, if its profile has one. */
  readonly upstreamCallId: string | undefined
}

export const makeCount = ({ shared }: GatewayRun, startedMs: number): AnswerCount => {
  const digest = createHash("sha256")
  const kept: Array<Uint8Array> = []
  let keptBytes = 0
  let responseBytes = 0
  let upstreamStatus: number | undefined
  let firstByteMs: number | undefined
  let costUsd: number | undefined
  let reader: Usage.UsageReader | undefined
  let generation: GenerationId.GenerationIdReader | undefined
  let end: Usage.AnswerEnd | undefined
  const readEnd = () => (end ??= reader?.end())
  return {
    begin: (answer, options) => {
      upstreamStatus = statusOf(answer)
      costUsd = Usage.ofHeaders(answer.headers)
      const { generationIdHeader } = shared.profile
      const contentType = answer.headers["content-type"] ?? ""
      if (generationIdHeader !== undefined)
        generation = GenerationId.makeReader({ contentType, header: answer.headers[generationIdHeader] })
      if (isSuccess(upstreamStatus)) reader = Usage.makeReader({ ...options, contentType })
    },
    piece: (piece) => {
      firstByteMs ??= Exchange.millisSince(startedMs)
      responseBytes += piece.byteLength
      digest.update(piece)
      generation?.push(piece)
      if (shared.auditBodies === "full" && keptBytes < bodyKeptBytesMax) {
        keptBytes += piece.byteLength
        kept.push(piece)
      }
      return reader?.push(piece) ?? piece
    },
    rest: () => readEnd()?.rest,
    read: () => ({
      upstreamStatus,
      costUsd,
      firstByteMs,
      responseBytes,
      responseDigest: digest.digest("hex"),
      body: Buffer.concat(kept),
      end: readEnd(),
      upstreamCallId: generation?.read()
    })
  }
}

export const statusOf = ({ statusCode = 502 }: IncomingMessage): number => statusCode

const isSuccess = (status: number): boolean => status >= 200 && status < 300

/** An answer of the upstream. */
interface Answered {
  readonly answer: IncomingMessage
  readonly count: AnswerCount
  readonly drain: Pick<CallDrain, "read">
}

/** Passes an answer to the agent, or only reads it if the agent has gone. Interruption closes its connection. */
export const pass = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  answered: Answered,
  { api, withholdUsage }: { readonly api: Api; readonly withholdUsage: boolean }
): Effect.Effect<CallEnd, UpstreamFailed> => {
  const { answer, count } = answered
  return Effect.suspend(() => {
    count.begin(answer, { api, withholdUsage })
    return isSuccess(statusOf(answer))
      ? passSuccess(exchange, answered, withholdUsage)
      : Effect.map(readError(run, exchange, answered), (text) => passError(run, exchange, answer, text))
  }).pipe(
    // No answer of an upstream may end the thread.
    Effect.catchDefect((thrown) => {
      answer.destroy()
      return Effect.fail(new UpstreamFailed({ outcome: "upstream_cut", detail: messageOf(thrown) }))
    })
  )
}

const passSuccess = (
  { requestId, response }: Exchange.Exchange,
  { answer, count, drain }: Answered,
  isChanged: boolean
) =>
  received<CallEnd>(answer, drain, () => {
    const status = statusOf(answer)
    if (!response.destroyed)
      response.writeHead(status, [...visible(answer.rawHeaders, isChanged), "x-request-id", requestId])
    // Headers and first piece go out in one write if they arrive together: two small writes can cost a reader 40 ms.
    const alone = setImmediate(() => response.destroyed || response.flushHeaders())
    return {
      onPiece: (piece) => {
        clearImmediate(alone)
        const out = count.piece(piece)
        if (out.byteLength > 0 && !response.destroyed && !response.write(out)) untilWritable(response, answer)
      },
      onEnd: () => {
        clearImmediate(alone)
        const rest = count.rest()
        if (!response.destroyed) response.end(rest)
        return { outcome: "completed", status }
      }
    }
  })

/** Stops reading an answer until its agent has read more, or has gone. */
const untilWritable = (response: ServerResponse, answer: IncomingMessage): void => {
  const resume = () => {
    response.off("drain", resume).off("close", resume)
    answer.resume()
  }
  answer.pause()
  response.on("drain", resume).on("close", resume)
}

/** Reads an upstream error before it is passed on, because it may contain the upstream's keys and addresses. */
const readError = (run: GatewayRun, exchange: Exchange.Exchange, { answer, count, drain }: Answered) =>
  received<string>(answer, drain, () => {
    const pieces: Array<Buffer> = []
    let bytes = 0
    return {
      onPiece: (piece) => {
        if (bytes < errorBytesMax) pieces.push(piece)
        bytes += piece.byteLength
        count.piece(piece)
        if (bytes > 16 * errorBytesMax) answer.destroy()
      },
      onEnd: () => withoutHost(run, exchange, Buffer.concat(pieces).toString("utf8").slice(0, errorBytesMax))
    }
  })

const passError = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  answer: IncomingMessage,
  text: string
): CallEnd => {
  const { requestId, response } = exchange
  const status = statusOf(answer)
  const detail = text.slice(0, detailLengthMax)
  const ownKey = run.ownKey()
  const budget = ownKey && KeyBudget.ofError(status, text, ownKey.budgetUsdMax)
  if (budget !== undefined) {
    // The agent gets the same answer as if the gateway's own count had ended its calls.
    const refusal = run.ledger.keySpent(budget)
    run.spent(refusal)
    return fail(exchange, "completed", GatewayAnswers.ofBudget(refusal), `upstream ${status}: ${detail}`)
  }
  if (response.destroyed) return { outcome: "completed", status, detail: `upstream ${status}: ${detail}` }
  // The next call asks for the key again, so the agent may retry.
  if (status === 401 && run.shared.keys.renews())
    return fail(exchange, "completed", GatewayAnswers.keyRefused, `upstream ${status}: ${detail}`)
  if (status < 400 || status === 401 || status === 403 || status === 407)
    return fail(exchange, "completed", GatewayAnswers.upstreamRefused, `upstream ${status}: ${detail}`)
  response.writeHead(status, [
    ...visible(answer.rawHeaders, true),
    "x-request-id",
    requestId,
    "content-length",
    String(Buffer.byteLength(text))
  ])
  response.end(text)
  return { outcome: "completed", status, detail }
}

/** Ends a call with an error of the gateway. An answer that has already begun is broken off. */
export const fail = (
  exchange: Exchange.Exchange,
  outcome: LlmOutcome,
  error: GatewayAnswers.GatewayError,
  detail: string
): CallEnd => {
  const answer = GatewayAnswers.render(error, exchange.dialect)
  if (exchange.response.headersSent) exchange.response.destroy()
  else Exchange.answer(exchange, answer)
  return { outcome, status: answer.status, detail: scrubbed(exchange, detail) }
}

/** Reads an answer to its end. Fails with `UpstreamFailed` if it is shorter than the upstream declared. */
const received = <A>(
  answer: IncomingMessage,
  drain: Answered["drain"],
  begin: () => { readonly onPiece: (piece: Buffer) => void; readonly onEnd: () => A }
): Effect.Effect<A, UpstreamFailed> =>
  Effect.callback((resume) => {
    const cut = (error?: Error) =>
      resume(
        Effect.fail(
          new UpstreamFailed({
            outcome: "upstream_cut",
            detail: error?.message ?? "the answer broke off"
          })
        )
      )
    answer.on("error", cut)
    answer.once("close", () => {
      if (!answer.complete) cut()
    })
    const { onEnd, onPiece } = begin()
    const onData = (piece: Buffer) => {
      onPiece(piece)
      drain.read(piece.byteLength)
    }
    answer.on("data", onData)
    answer.once("end", () => resume(Effect.sync(onEnd)))
    return Effect.sync(() => {
      // Node still emits the pieces that it has already read when an answer is destroyed, and the call is settled.
      answer.off("data", onData)
      answer.destroy()
    })
  })

/** Upstream headers that the agent may see, as Node's flat array. */
const visible = (raw: ReadonlyArray<string>, withoutLength: boolean): Array<string> => {
  const seen: Array<string> = []
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase()
    if (!GatewayAnswers.isHidden(name) && !(withoutLength && name === "content-length"))
      seen.push(name, raw[at + 1]!)
  }
  return seen
}

/** Replaces the credentials of a call in a text. */
const scrubbed = ({ secrets }: Exchange.Exchange, text: string): string =>
  secrets.reduce((clean, secret) => KeyInjection.scrub(clean, secret), text)

/** Replaces the credentials of a call and the upstream's address in a text. */
export const withoutHost = ({ shared }: GatewayRun, exchange: Exchange.Exchange, text: string): string =>
  [shared.address.display, shared.address.authority].reduce(
    (cleaned, own) => cleaned.replaceAll(own, "[upstream]"),
    scrubbed(exchange, text)
  )
