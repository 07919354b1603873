/**
 * Reads the tokens and cost of a call from the upstream's answer while it passes.
 *
 * The answer is passed on piece by piece. Only parts that may hold usage are parsed, and memory is bounded whatever an
 * upstream sends. One event may be withheld from the client: the usage that the gateway requested and the client did
 * not. A figure that the upstream did not report is absent, never 0. If a stream breaks off, its provisional figures
 * for output and cost are ignored.
 */
import type { LlmUsage } from "@cogni/sandbox-core/RunFigures"
import * as EventCutter from "./EventCutter.ts"
import * as JsonMember from "./JsonMember.ts"
import type { Api } from "./RoutePolicy.ts"

export interface UsageReaderOptions {
  readonly api: Api
  readonly contentType: string
  /** Withholds the chunk with usage and without choices, because the client did not request it. */
  readonly withholdUsage: boolean
}

export interface AnswerEnd {
  /** Buffered bytes that must still be passed on. */
  readonly rest: Uint8Array | undefined
  readonly usage: LlmUsage | undefined
  /** The upstream marked the end: `[DONE]`, `response.completed`, `message_stop`, a complete object. */
  readonly sawEnd: boolean
  /** Number of events with data in a stream; 0 for an answer in one piece. */
  readonly events: number
  /** Whether a part did not match the content type or was too long to parse. It was passed on anyway. */
  readonly garbage: boolean
}

export interface UsageReader {
  /** Reads a piece of the answer. Returns the bytes to pass on now: the same ones, unless something is withheld. */
  readonly push: (piece: Uint8Array) => Uint8Array
  /** Ends the answer, complete or not. Further calls return the same, except for `rest`. */
  readonly end: () => AnswerEnd
}

/** Maximum size of an event that is parsed. A longer one is passed on, and its usage is unknown. */
export const eventBytesMax = 1024 * 1024

/** Maximum size of the `usage` member that is parsed in an answer in one piece. The answer may have any size. */
export const usageBytesMax = 64 * 1024

/** Maximum tokens of a call. A larger figure is wrong and ignored. */
export const tokensMax = 1_000_000_000

/** Maximum cost of a call, in US dollars. A larger figure is wrong and ignored. */
export const costUsdMax = 1_000_000

export const makeReader = (options: UsageReaderOptions): UsageReader =>
  EventCutter.isEvents(options.contentType) ? makeEvents(options) : makeWhole(options)

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
  /** Whether the reported figures are final and not provisional. */
  let settled = false
  let sawEnd = false
  let garbage = false

  const cutter = EventCutter.make({
    bytesMax: eventBytesMax,
    holds: withholdUsage,
    look: (event) => {
      if (!mayTell(api, event)) return false
      const data = EventCutter.dataOf(event)
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
      const usage = withoutBeginning(body, normalize(api, figures))
      told = merge(told, api === "messages" ? withoutPartialCost(told, usage) : usage)
      if (isBill(api, body)) settled = true
      return Array.isArray(body["choices"]) && body["choices"].length === 0
    }
  })

  return {
    push: cutter.push,
    end: () => {
      // A truncated event does not count as garbage: the stream broke off.
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

/** Returns the cost that LiteLLM reports in headers. A stream's headers come before the answer and report no cost. */
export const ofHeaders = (
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
): number | undefined => {
  if (EventCutter.isEvents(String(headers["content-type"] ?? ""))) return undefined
  const value = headers["x-litellm-response-cost"]
  if (typeof value !== "string" || !/^\d{1,20}(?:\.\d{1,40})?(?:e[+-]?\d{1,3})?$/iu.test(value))
    return undefined
  const cost = Number(value)
  return isCost(cost) ? cost : undefined
}

/** Types of events that end an answer. */
const lastTypes: ReadonlySet<unknown> = new Set([
  "message_stop",
  "response.completed",
  "response.incomplete",
  "response.failed"
])

const lastWords = [...lastTypes].map((type) => Buffer.from(`"${type}"`))
const doneWord = Buffer.from("[DONE]")
const usageWord = Buffer.from('"usage"')

/** Maximum size of `data: [DONE]` in any spelling. */
const doneBytesMax = 64

/** Checks whether an event is worth parsing: most are a word of the answer. Text inside a JSON string cannot match. */
const mayTell = (api: UsageReaderOptions["api"], event: Buffer): boolean =>
  (event.byteLength <= doneBytesMax && event.includes(doneWord)) ||
  tellsUsage(event) ||
  (api === "messages" && event.includes(lastWords[0]!)) ||
  (api === "responses" && lastWords.some((word) => event.includes(word)))

/** Returns whether an event holds usage. Chunks before the last one have `"usage": null`. */
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

/** Finds the usage where each API reports it: in the starting message, in the completed response, at the top level. */
const figuresOf = (api: UsageReaderOptions["api"], body: Fields): Fields | undefined => {
  const inner = api === "messages" ? body["message"] : api === "responses" ? body["response"] : undefined
  const figures = (isRecord(inner) ? inner["usage"] : undefined) ?? body["usage"]
  return isRecord(figures) ? figures : undefined
}

/** Returns whether the figures in this event are final, even if the stream breaks off after it. */
const isBill = (api: UsageReaderOptions["api"], body: Fields): boolean => {
  if (api !== "chat_completions") return body["type"] === "message_delta" || lastTypes.has(body["type"])
  const { choices } = body
  return (
    Array.isArray(choices) &&
    choices.every((choice) => isRecord(choice) && typeof choice["finish_reason"] === "string")
  )
}

/** Ignores the output and cost at the start of a message, because the model has not written anything yet. */
const withoutBeginning = (body: Fields, usage: LlmUsage): LlmUsage => {
  if (body["type"] !== "message_start") return usage
  const { costUsd: _cost, outputTokens: _output, ...input } = usage
  return input
}

/**
 * Ignores a cost that does not cover the input that is known. LiteLLM calculates the cost in an event of a message from
 * that event alone, and the provider's last event may repeat the input or leave it out.
 */
const withoutPartialCost = (told: LlmUsage, usage: LlmUsage): LlmUsage => {
  if (usage.costUsd === undefined || (usage.inputTokens ?? -1) >= (told.inputTokens ?? 0)) return usage
  const { costUsd: _cost, ...tokens } = usage
  return tokens
}

/** Merges two reports. Counts only grow, so the report with more input is the later or the more complete one. */
const merge = (earlier: LlmUsage, later: LlmUsage): LlmUsage => {
  const { costUsd: cost = -1, outputTokens: output = -1, ...input } = earlier
  const { costUsd = -1, outputTokens = -1, ...laterInput } = later
  const hour = laterInput.cacheWrite1hTokens ?? input.cacheWrite1hTokens
  const before = input.inputTokens ?? -1
  const after = laterInput.inputTokens ?? -1
  return {
    ...(after < before ? input : after > before ? laterInput : { ...input, ...laterInput }),
    // Reported only when the message starts.
    ...(hour === undefined ? {} : { cacheWrite1hTokens: hour }),
    ...(Math.max(output, outputTokens) < 0 ? {} : { outputTokens: Math.max(output, outputTokens) }),
    ...(Math.max(cost, costUsd) < 0 ? {} : { costUsd: Math.max(cost, costUsd) })
  }
}

/** Returns the input of a stream that broke off, unless it was not counted yet. */
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
      : api === "embeddings"
        ? withoutOutput(ofOpenAi(figures))
        : ofOpenAi(figures)

/** Embeddings have no output tokens, and no upstream reports any. */
const withoutOutput = (usage: LlmUsage): LlmUsage =>
  usage.inputTokens === undefined ? usage : { ...usage, outputTokens: 0 }

/** Returns the first value that is a valid figure. */
const firstOf = <Field extends keyof LlmUsage>(
  field: Field,
  isFigure: (value: unknown) => value is number,
  values: ReadonlyArray<unknown>
): { readonly [K in Field]?: number } => {
  const value = values.find(isFigure)
  return value === undefined ? {} : ({ [field]: value } as { readonly [K in Field]: number })
}

/** Returns the tokens that were written to a cache for one hour. */
const cachedForHour = (lifetimes: unknown) =>
  firstOf("cacheWrite1hTokens", isTokens, isRecord(lifetimes) ? [lifetimes["ephemeral_1h_input_tokens"]] : [])

/** In OpenAI's format, `prompt_tokens` and `input_tokens` include tokens read from or written to a cache. */
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
      detail["cache_write_tokens"],
      figures["cache_creation_input_tokens"]
    ]),
    ...cachedForHour(lifetimes),
    ...firstOf("costUsd", isCost, [figures["cost"]])
  }
}

/** In Anthropic's format, `input_tokens` excludes tokens read from or written to a cache. */
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
