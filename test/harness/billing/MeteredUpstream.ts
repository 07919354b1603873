/**
 * An upstream that acts as LiteLLM for chat completions and for spend rows, and writes its rows when a test lets it.
 *
 * It counts every call that reaches it, which is the truth about what was asked of a model. It bills a call also if its
 * client has gone, as a provider may do.
 */
import { Effect, type Scope } from "effect"
import { createHash } from "node:crypto"
import type { IncomingMessage, ServerResponse } from "node:http"
import * as LiteLlmRows from "../LiteLlmRows.ts"
import * as LocalServer from "../LocalServer.ts"
import { prices } from "./BillingModel.ts"
import * as BillingRows from "./BillingRows.ts"

/** When the row of a call is written: with its answer, at the end, or at both times. */
export type RowTime = "prompt" | "late" | "twice"

export interface MeteredUpstream {
  readonly url: string
  /** IDs of the calls that arrived, in order. */
  readonly received: ReadonlyArray<string>
  /** Called with each further call, before it is answered. */
  onCall: (number: number) => void
  /** Writes the rows that are late. */
  readonly writeAll: Effect.Effect<void>
  /** The rows that are written. */
  readonly rows: Effect.Effect<ReadonlyArray<BillingRows.Row>>
}

/** Milliseconds for which the answers of calls are held, by their number. */
const holdMillis = [0, 5, 40, 120] as const

interface Asked {
  readonly stream?: boolean
  readonly messages?: ReadonlyArray<{ readonly content: string }>
}

const header = ({ headers }: IncomingMessage, name: string): string => String(headers[name] ?? "")

const rowOf = (request: IncomingMessage, number: number, costUsd: number): LiteLlmRows.Row => {
  const callId = header(request, "x-litellm-call-id")
  const { inputTokens, outputTokens } = figuresOf(number)
  return LiteLlmRows.row(callId, {
    api_key: createHash("sha256")
      .update(header(request, "authorization").replace(/^Bearer /u, ""))
      .digest("hex"),
    end_user: header(request, "x-litellm-end-user-id"),
    user: null,
    team_id: null,
    request_tags: [],
    spend: costUsd,
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
    model_group: "priced",
    startTime: new Date().toISOString(),
    metadata: {
      litellm_call_id: callId,
      spend_logs_metadata: JSON.parse(header(request, "x-litellm-spend-logs-metadata"))
    }
  })
}

const figuresOf = (number: number) => ({
  inputTokens: 100 + ((number * 37) % 900),
  outputTokens: 10 + ((number * 13) % 90)
})

const costOf = (number: number): number => {
  const { inputTokens, outputTokens } = figuresOf(number)
  const { input, output } = prices["priced"]!
  return (inputTokens * input + outputTokens * output) / 1e6
}

/** Answers as LiteLLM does: every third answer has no cost, so that the host's prices apply. */
const answer = (response: ServerResponse, number: number, asked: Asked): void => {
  const { inputTokens, outputTokens } = figuresOf(number)
  const cost = number % 3 === 0 ? {} : { cost: costOf(number) }
  const usage = {
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
    ...cost
  }
  const base = { id: `metered-${number}`, created: 1, model: "priced" }
  if (asked.stream !== true) {
    const message = { role: "assistant", content: "hello" }
    LocalServer.respond(response, 200, {
      ...base,
      object: "chat.completion",
      choices: [{ index: 0, finish_reason: "stop", message }],
      usage
    })
    return
  }
  response.writeHead(200, { "content-type": "text/event-stream" })
  const send = (event: object) => response.write(`data: ${JSON.stringify(event)}\n\n`)
  send({ ...base, choices: [{ index: 0, delta: { role: "assistant", content: "hello" } }] })
  send({ ...base, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] })
  send({ ...base, choices: [], usage })
  response.end("data: [DONE]\n\n")
}

/** `times` says for each call, by its number, when its row is written. It begins again after its last one. */
export const acquire = Effect.fnUntraced(function* (
  times: ReadonlyArray<RowTime>
): Effect.fn.Return<MeteredUpstream, never, Scope.Scope> {
  const spend = LiteLlmRows.make()
  const received: Array<string> = []
  const late: Array<LiteLlmRows.Row> = []
  const called = async (request: IncomingMessage, response: ServerResponse) => {
    const { body } = await LocalServer.received(request)
    const number = received.length
    const row = rowOf(request, number, costOf(number))
    received.push(String(row["litellm_call_id"]))
    upstream.onCall(number)
    await new Promise((resolve) => setTimeout(resolve, holdMillis[number % holdMillis.length]))
    const time = times[number % times.length]!
    if (time !== "late") spend.rows.push(row)
    if (time !== "prompt")
      late.push(time === "twice" ? { ...row, request_id: `${String(row["request_id"])}-again` } : row)
    if (!response.destroyed) answer(response, number, body as Asked)
  }
  const url = yield* LocalServer.serve((request, response) => {
    response.on("error", () => undefined)
    if (request.method === "POST") called(request, response).catch(() => response.destroy())
    else LiteLlmRows.answer(spend, request, response)
  })
  const upstream: MeteredUpstream = {
    url,
    received,
    onCall: () => undefined,
    writeAll: Effect.sync(() => void spend.rows.push(...late.splice(0))),
    rows: Effect.suspend(() => BillingRows.decoded(spend.rows))
  }
  return upstream
})
