/**
 * What the upstream answers to a call: counted piece by piece, and passed to the agent.
 *
 * Pieces go from one stream of Node to the other within its callbacks, which is the fast way: an event of an answer is
 * with the agent in the turn in which it came.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { createHash } from "node:crypto"
import type { IncomingMessage } from "node:http"
import * as Effect from "effect/Effect"
import type { LlmOutcome } from "@cogni/sandbox-core/RunResult"
import * as KeyInjection from "../../KeyInjection.ts"
import type { Api } from "../policy/RoutePolicy.ts"
import * as Usage from "../policy/Usage.ts"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import { UpstreamFailed } from "./UpstreamClient.ts"

/** How a call ended. */
export interface CallEnd {
  readonly outcome: LlmOutcome
  /** As the agent was told it. */
  readonly status: number
  readonly detail?: string | undefined
}

/** An upstream's error is read whole up to here, to take out what is not for the agent. */
const errorBytesMax = 64 * 1024

/** Of a body that is kept in the audit. */
export const bodyKeptBytesMax = 1024 * 1024

/** How much of an upstream's error the audit has. */
const detailLengthMax = 500

/** Said by nginx of a client that hung up before its answer; no client hears it. */
export const statusGone = 499

/** What is counted of an answer. */
export interface AnswerCount {
  readonly begin: (answer: IncomingMessage, options: Omit<Usage.UsageReaderOptions, "contentType">) => void
  /** Count a piece; what of it is for the agent is returned. */
  readonly piece: (piece: Uint8Array) => Uint8Array
  /** What is left for the agent when there is no more. */
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
  let end: Usage.AnswerEnd | undefined
  const readEnd = () => (end ??= reader?.end())
  return {
    begin: (answer, options) => {
      upstreamStatus = statusOf(answer)
      costUsd = Usage.ofHeaders(answer.headers)
      if (isSuccess(upstreamStatus))
        reader = Usage.makeReader({ ...options, contentType: answer.headers["content-type"] ?? "" })
    },
    piece: (piece) => {
      firstByteMs ??= Exchange.millisSince(startedMs)
      responseBytes += piece.byteLength
      digest.update(piece)
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
      end: readEnd()
    })
  }
}

export const statusOf = ({ statusCode = 502 }: IncomingMessage): number => statusCode

const isSuccess = (status: number): boolean => status >= 200 && status < 300

/** Pass it to the agent. Interrupted, the upstream is hung up on. */
export const pass = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  answer: IncomingMessage,
  count: AnswerCount,
  { api, withholdUsage }: { readonly api: Api; readonly withholdUsage: boolean }
): Effect.Effect<CallEnd, UpstreamFailed> =>
  Effect.suspend(() => {
    count.begin(answer, { api, withholdUsage })
    return isSuccess(statusOf(answer))
      ? passSuccess(exchange, answer, count, withholdUsage)
      : Effect.map(readError(run, answer, count), (text) => passError(run, exchange, answer, text))
  }).pipe(
    // Whatever an upstream sends, it must not end the thread.
    Effect.catchDefect((thrown) => {
      answer.destroy()
      return Effect.fail(new UpstreamFailed({ outcome: "upstream_cut", detail: messageOf(thrown) }))
    })
  )

const passSuccess = (
  { requestId, response }: Exchange.Exchange,
  answer: IncomingMessage,
  count: AnswerCount,
  isChanged: boolean
) =>
  received<CallEnd>(answer, () => {
    const status = statusOf(answer)
    response.writeHead(status, [...visible(answer.rawHeaders, isChanged), "x-request-id", requestId])
    // Headers and first piece in one write, where they come together: two small ones can cost a reader 40 ms.
    const alone = setImmediate(() => response.flushHeaders())
    return {
      onPiece: (piece) => {
        clearImmediate(alone)
        const out = count.piece(piece)
        if (out.byteLength > 0 && !response.write(out)) {
          answer.pause()
          response.once("drain", () => answer.resume())
        }
      },
      onEnd: () => {
        clearImmediate(alone)
        response.end(count.rest())
        return { outcome: "completed", status }
      }
    }
  })

/** What an upstream says when it fails may name its keys and addresses: it is read first. */
const readError = (run: GatewayRun, answer: IncomingMessage, count: AnswerCount) =>
  received<string>(answer, () => {
    const pieces: Array<Buffer> = []
    let bytes = 0
    return {
      onPiece: (piece) => {
        if (bytes < errorBytesMax) pieces.push(piece)
        bytes += piece.byteLength
        count.piece(piece)
        if (bytes > 16 * errorBytesMax) answer.destroy()
      },
      onEnd: () => withoutHost(run, Buffer.concat(pieces).toString("utf8").slice(0, errorBytesMax))
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
  if (status < 400 || status === 401 || status === 403 || status === 407)
    return fail(run, exchange, "completed", GatewayAnswers.upstreamRefused, `upstream ${status}: ${detail}`)
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

/** The end of a call that the gateway answers itself; an answer that has begun is broken off. */
export const fail = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  outcome: LlmOutcome,
  error: GatewayAnswers.GatewayError,
  detail: string
): CallEnd => {
  const answer = GatewayAnswers.render(error, exchange.dialect)
  if (exchange.response.headersSent) exchange.response.destroy()
  else Exchange.answer(exchange, answer)
  return { outcome, status: answer.status, detail: KeyInjection.scrub(detail, run.shared.upstreamKey) }
}

/** Reads an answer to its end, which must be where the upstream said it would be. */
const received = <A>(
  answer: IncomingMessage,
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
    answer.on("data", onPiece)
    answer.once("end", () => resume(Effect.sync(onEnd)))
    return Effect.sync(() => answer.destroy())
  })

/** An upstream's headers that the agent may see, flat as Node takes them. */
const visible = (raw: ReadonlyArray<string>, withoutLength: boolean): Array<string> => {
  const seen: Array<string> = []
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase()
    if (!GatewayAnswers.isHidden(name) && !(withoutLength && name === "content-length"))
      seen.push(name, raw[at + 1]!)
  }
  return seen
}

/** A text without the key and the address of the upstream. */
export const withoutHost = ({ shared }: GatewayRun, text: string): string =>
  [shared.address.display, shared.address.authority].reduce(
    (cleaned, own) => cleaned.replaceAll(own, "[upstream]"),
    KeyInjection.scrub(text, shared.upstreamKey)
  )
