/**
 * Tokens and cost of a call, read out of the upstream's answer while it passes.
 *
 * The answer goes on piece by piece as it came; only what may hold usage is parsed, and what is remembered of it is
 * bounded, whatever an upstream sends. One event may be kept from the client: the usage that the gateway asked for and
 * the client did not. What the upstream did not say is absent, never 0; what it had only begun to say when the stream
 * broke off is no bill.
 */
import type { LlmUsage } from "@cogni/sandbox-core/RunResult"
import * as EventCutter from "./EventCutter.ts"
import * as JsonMember from "./JsonMember.ts"
import type { Api } from "./RoutePolicy.ts"

export interface UsageReaderOptions {
  readonly api: Api
  readonly contentType: string
  /** The client did not ask for the chunk with usage and without choices: keep it from him. */
  readonly withholdUsage: boolean
}

export interface AnswerEnd {
  /** What was held back and must still be handed on. */
  readonly rest: Uint8Array | undefined
  readonly usage: LlmUsage | undefined
  /** The upstream said that this was all: `[DONE]`, `response.completed`, `message_stop`, a whole object. */
  readonly sawEnd: boolean
  /** Of a stream, how many events with data; 0 for an answer in one piece. */
  readonly events: number
  /** Something in it was not what its content type says, or too long to look into. It was passed on all the same. */
  readonly garbage: boolean
}

export interface UsageReader {
  /** A piece of the answer; returns what is to be handed on now: the same bytes, unless something is withheld. */
  readonly push: (piece: Uint8Array) => Uint8Array
  /** The answer is over, or was cut off. The same however often it is asked, but for `rest`. */
  readonly end: () => AnswerEnd
}

/** A longer event of a stream is passed on, and what it says of usage is unknown. */
export const eventBytesMax = 1024 * 1024

/** So is a longer account of usage in an answer in one piece, however long the answer is. */
export const usageBytesMax = 64 * 1024

/** No call has more tokens than this: whoever says so is wrong. */
export const tokensMax = 1_000_000_000

/** Nor does one cost more. */
export const costUsdMax = 1_000_000

export const makeReader = (options: UsageReaderOptions): UsageReader =>
  isEvents(options.contentType) ? makeEvents(options) : makeWhole(options)

const isEvents = (contentType: string): boolean => /^\s*text\/event-stream\s*(?:;|$)/iu.test(contentType)

const makeWhole = ({ api }: UsageReaderOptions): UsageReader => {
  const member = JsonMember.make("usage", usageBytesMax)
  return {
    push: (piece) => {
      member.push(piece)
      return piece
    },
    end: () => {
      const { complete, strange, text } = member.end()
      const figures = text === undefined ? undefined : parse(text)
      return {
        rest: undefined,
        usage: orAbsent(normalize(api, figures)),
        sawEnd: complete,
        events: 0,
        garbage: strange || (text !== undefined && figures === undefined)
      }
    }
  }
}

const makeEvents = ({ api, withholdUsage }: UsageReaderOptions): UsageReader => {
  let told: LlmUsage = {}
  /** What was told is the bill, not what it had come to so far. */
  let settled = false
  let sawEnd = false
  let garbage = false

  const cutter = EventCutter.make({
    bytesMax: eventBytesMax,
    holds: withholdUsage,
    look: (event) => {
      if (!mayTell(api, event)) return false
      const data = dataOf(event)
      if (data.trim() === "[DONE]") {
        sawEnd = true
        return false
      }
      const body = parse(data)
      if (!isRecord(body)) {
        garbage = true
        return false
      }
      if (lastTypes.has(body["type"])) sawEnd = true
      const figures = figuresOf(api, body)
      if (figures === undefined) return false
      told = merge(told, withoutBeginning(body, normalize(api, figures)))
      if (isBill(api, body)) settled = true
      return Array.isArray(body["choices"]) && body["choices"].length === 0
    }
  })

  return {
    push: cutter.push,
    end: () => {
      // An event that was cut off is nobody's garbage.
      const wasGarbage = garbage
      const rest = cutter.end()
      garbage = wasGarbage
      return {
        rest,
        usage: orAbsent(settled || sawEnd ? told : soFar(told)),
        sawEnd,
        events: cutter.events(),
        garbage: garbage || cutter.strange()
      }
    }
  }
}

/** The cost of a call as LiteLLM says it. The headers of a stream come before anything was written, and tell nothing. */
export const ofHeaders = (
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
): number | undefined => {
  if (isEvents(String(headers["content-type"] ?? ""))) return undefined
  const value = headers["x-litellm-response-cost"]
  if (typeof value !== "string" || !/^\d{1,20}(?:\.\d{1,40})?(?:e[+-]?\d{1,3})?$/iu.test(value))
    return undefined
  const cost = Number(value)
  return isCost(cost) ? cost : undefined
}

/** Types of events after which nothing more of an answer comes. */
const lastTypes: ReadonlySet<unknown> = new Set([
  "message_stop",
  "response.completed",
  "response.incomplete",
  "response.failed"
])

const lastWords = [...lastTypes].map((type) => Buffer.from(`"${type}"`))
const doneWord = Buffer.from("[DONE]")
const usageWord = Buffer.from('"usage"')

/** `data: [DONE]` in any spelling is no longer than this. */
const doneBytesMax = 64

/** A glance: most events are a word of the answer, and are not worth parsing. No text in quotes looks like these. */
const mayTell = (api: UsageReaderOptions["api"], event: Buffer): boolean =>
  (event.byteLength <= doneBytesMax && event.includes(doneWord)) ||
  tellsUsage(event) ||
  (api === "messages" && event.includes(lastWords[0]!)) ||
  (api === "responses" && lastWords.some((word) => event.includes(word)))

/** Chunks that come before the last say `"usage": null`. */
const tellsUsage = (event: Buffer): boolean => {
  for (let at = event.indexOf(usageWord); at !== -1; at = event.indexOf(usageWord, at + 1)) {
    let next = at + usageWord.byteLength
    while (event[next] === space || event[next] === colon) next += 1
    if (event[next] !== letterN) return true
  }
  return false
}

const space = 32
const colon = 58
const letterN = 110

/** With the space that may be before it, which is none to JSON. */
const dataOf = (event: Buffer): string =>
  event
    .toString("utf8")
    .split(/\r\n|\r|\n/u)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5))
    .join("\n")

/** Where each API tells it: in the message that begins, in the finished response, at the top. */
const figuresOf = (api: UsageReaderOptions["api"], body: Fields): Fields | undefined => {
  const inner = api === "messages" ? body["message"] : api === "responses" ? body["response"] : undefined
  const figures = (isRecord(inner) ? inner["usage"] : undefined) ?? body["usage"]
  return isRecord(figures) ? figures : undefined
}

/** Whether figures are final when they come with this, even if the stream breaks off behind it. */
const isBill = (api: UsageReaderOptions["api"], body: Fields): boolean => {
  if (api !== "chat_completions") return body["type"] === "message_delta" || lastTypes.has(body["type"])
  const { choices } = body
  return (
    Array.isArray(choices) &&
    choices.every((choice) => isRecord(choice) && typeof choice["finish_reason"] === "string")
  )
}

/** When a message begins, nothing of it has been written: what is said of that then is no figure. */
const withoutBeginning = (body: Fields, usage: LlmUsage): LlmUsage => {
  if (body["type"] !== "message_start") return usage
  const { costUsd: _cost, outputTokens: _output, ...input } = usage
  return input
}

/** Counts only grow: of two accounts of the input, the greater one is the later or the fuller. */
const merge = (earlier: LlmUsage, later: LlmUsage): LlmUsage => {
  const { costUsd: cost = -1, outputTokens: output = -1, ...input } = earlier
  const { costUsd = -1, outputTokens = -1, ...laterInput } = later
  const hour = laterInput.cacheWrite1hTokens ?? input.cacheWrite1hTokens
  const before = input.inputTokens ?? -1
  const after = laterInput.inputTokens ?? -1
  return {
    ...(after < before ? input : after > before ? laterInput : { ...input, ...laterInput }),
    // Said when the message begins, and not again.
    ...(hour === undefined ? {} : { cacheWrite1hTokens: hour }),
    ...(Math.max(output, outputTokens) < 0 ? {} : { outputTokens: Math.max(output, outputTokens) }),
    ...(Math.max(cost, costUsd) < 0 ? {} : { costUsd: Math.max(cost, costUsd) })
  }
}

/** Of a stream that broke off: its input, unless it had not been counted yet. */
const soFar = (told: LlmUsage): LlmUsage => {
  const { costUsd: _cost, outputTokens: _output, ...input } = told
  return (input.inputTokens ?? 0) === 0 ? {} : input
}

type Fields = Readonly<Record<string, unknown>>

const isRecord = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const isTokens = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= tokensMax

const isCost = (value: unknown): value is number =>
  typeof value === "number" && value >= 0 && value <= costUsdMax

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const orAbsent = (usage: LlmUsage): LlmUsage | undefined =>
  Object.keys(usage).length === 0 ? undefined : usage

const normalize = (api: UsageReaderOptions["api"], figures: unknown): LlmUsage =>
  api === "count_tokens" || !isRecord(figures)
    ? {}
    : api === "messages"
      ? ofMessages(figures)
      : ofOpenAi(figures)

/** The first that is a figure. */
const firstOf = <Field extends keyof LlmUsage>(
  field: Field,
  isFigure: (value: unknown) => value is number,
  values: ReadonlyArray<unknown>
): { readonly [K in Field]?: number } => {
  const value = values.find(isFigure)
  return value === undefined ? {} : ({ [field]: value } as { readonly [K in Field]: number })
}

/** What was written to a cache, by how long it is kept there. */
const cachedForHour = (lifetimes: unknown) =>
  firstOf("cacheWrite1hTokens", isTokens, isRecord(lifetimes) ? [lifetimes["ephemeral_1h_input_tokens"]] : [])

/** `prompt_tokens` and `input_tokens` hold what was read from or written to a cache as well. */
const ofOpenAi = (figures: Fields): LlmUsage => {
  const details = figures["prompt_tokens_details"] ?? figures["input_tokens_details"]
  const detail = isRecord(details) ? details : {}
  const lifetimes = detail["cache_creation_token_details"] ?? figures["cache_creation"]
  return {
    ...firstOf("inputTokens", isTokens, [figures["prompt_tokens"], figures["input_tokens"]]),
    ...firstOf("outputTokens", isTokens, [figures["completion_tokens"], figures["output_tokens"]]),
    ...firstOf("cacheReadTokens", isTokens, [detail["cached_tokens"], figures["cache_read_input_tokens"]]),
    ...firstOf("cacheWriteTokens", isTokens, [
      detail["cache_creation_tokens"],
      figures["cache_creation_input_tokens"]
    ]),
    ...cachedForHour(lifetimes),
    ...firstOf("costUsd", isCost, [figures["cost"]])
  }
}

/** `input_tokens` holds neither what was read from a cache nor what was written to one. */
const ofMessages = (figures: Fields): LlmUsage => {
  const { cache_creation_input_tokens: write, cache_read_input_tokens: read, input_tokens: input } = figures
  const all = [input, read, write].filter(isTokens).reduce((sum, tokens) => sum + tokens, 0)
  return {
    ...(isTokens(input) ? firstOf("inputTokens", isTokens, [all]) : {}),
    ...firstOf("outputTokens", isTokens, [figures["output_tokens"]]),
    ...firstOf("cacheReadTokens", isTokens, [read]),
    ...firstOf("cacheWriteTokens", isTokens, [write]),
    ...cachedForHour(figures["cache_creation"]),
    ...firstOf("costUsd", isCost, [figures["cost"]])
  }
}
