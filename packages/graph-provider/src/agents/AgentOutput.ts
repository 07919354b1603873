/**
 * How what an agent writes becomes events and an answer. Pure, and fed as the bytes come.
 *
 * A reader is a value: feeding it gives what it has understood and the reader for what follows. It sees text that a
 * hostile program may have written, in pieces that end anywhere, and never throws: what it cannot read it passes over,
 * and at the end there is an answer or there is none.
 */
import { Data, Option, Result, Schema } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"

/** A number of tokens, or of tries. */
export const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

/** Tokens, as the agent counted them. For people; the ledger has its own. */
export const AgentUsage = Schema.Struct({
  inputTokens: Schema.optionalKey(Count),
  outputTokens: Schema.optionalKey(Count)
})

export type AgentUsage = typeof AgentUsage.Type

export const AgentAnswer = Schema.Struct({
  text: Schema.String,
  usage: Schema.optionalKey(AgentUsage),
  sessionId: Schema.optionalKey(Schema.String)
})

export type AgentAnswer = typeof AgentAnswer.Type

/** What an agent may cause its caller to see. Usage, errors and the end are the host's to say. */
export type AgentEvent = Extract<
  AiEvent,
  { readonly type: "text_delta" | "tool_call_start" | "tool_call_result" | "status" }
>

/** What was understood of a piece of output, and the reader for the next. */
export type Reading = Step<AgentReader>

export interface AgentReader {
  /** Pieces end anywhere, but never inside a character. */
  readonly feed: (text: string) => Reading
  /** Nothing more will come. An error of the agent is a failure here, and never an answer. */
  readonly end: () => AgentOutcome
}

/** One line longer than this is passed over, and said. */
export const lineCharsMax = 4 * 1024 * 1024

/** A line whose values are nested deeper than this is passed over. */
export const depthMax = 256

/** How much of an agent's whole output is kept to be read at its end. */
export const wholeCharsMax = 16 * 1024 * 1024

/** The agent gave no answer: it said why, or what it said cannot be read. */
export class AgentFailed extends Data.TaggedError("AgentFailed")<{
  /** The agent's own code, or `unreadable`. */
  readonly code: string
  readonly detail: string
  /** What it had said of an answer until then. */
  readonly textSoFar: string
}> {
  override get message(): string {
    return `the agent gave no answer: ${this.detail} (${this.code})`
  }
}

/** Where an agent's output comes to: an answer, or why there is none. */
export type AgentOutcome = Result.Result<AgentAnswer, AgentFailed>

export const failed = (code: string, detail: string, textSoFar = ""): AgentOutcome =>
  Result.fail(new AgentFailed({ code, detail, textSoFar }))

export const unreadable = (detail: string, textSoFar = ""): AgentOutcome =>
  failed("unreadable", detail, textSoFar)

export const answered = (
  text: string,
  { sessionId, usage }: { readonly sessionId?: string | undefined; readonly usage?: AgentUsage | undefined }
): AgentOutcome =>
  Result.succeed({
    text,
    ...(usage === undefined ? {} : { usage }),
    ...(sessionId === undefined ? {} : { sessionId })
  })

/** Of two ends of one agent, the later; but a failure stands, whatever comes after it. */
export const standing = (before: AgentOutcome | undefined, now: AgentOutcome): AgentOutcome =>
  before !== undefined && Result.isFailure(before) ? before : now

/** Tokens that an agent has counted so far. */
export interface Tokens {
  readonly inputTokens: number
  readonly outputTokens: number
}

export const noTokens: Tokens = { inputTokens: 0, outputTokens: 0 }

export const plus = (one: Tokens, other: Tokens): Tokens => ({
  inputTokens: one.inputTokens + other.inputTokens,
  outputTokens: one.outputTokens + other.outputTokens
})

/** Of one call. What a cache was read for or written with is counted beside the rest. */
const CallTokens = Schema.Struct({
  input: Count,
  output: Count,
  cacheRead: Schema.optionalKey(Count),
  cacheWrite: Schema.optionalKey(Count)
})

const decodeCallTokens = Schema.decodeUnknownOption(CallTokens)

/** Tokens of one call, as several agents write them; none where they are written otherwise. */
export const tokensOf = (written: unknown): Tokens =>
  Option.match(decodeCallTokens(written), {
    onNone: () => noTokens,
    onSome: ({ cacheRead = 0, cacheWrite = 0, input, output }) => ({
      inputTokens: input + cacheRead + cacheWrite,
      outputTokens: output
    })
  })

/** Tokens of all calls; an agent that counted none has said nothing of them. */
export const usageOf = (tokens: Tokens): AgentUsage | undefined =>
  tokens.inputTokens + tokens.outputTokens === 0 ? undefined : tokens

export const toolStart = (toolCallId: string, toolName: string, args: unknown): AgentEvent => ({
  type: "tool_call_start",
  toolCallId,
  toolName,
  args
})

export const toolResult = (toolCallId: string, result: unknown, isError: boolean): AgentEvent => ({
  type: "tool_call_result",
  toolCallId,
  result,
  ...(isError ? { isError } : {})
})

/** What a line of output comes to: what is said of it, and the state for the next. */
export type Step<S> = readonly [events: ReadonlyArray<AgentEvent>, next: S]

/** Reads a line of one kind. */
export type LineReader<S> = (state: S, line: unknown) => Step<S>

/** Reads what fits a schema, and passes over what does not. */
export const fitting = <S, A>(
  schema: Schema.ConstraintDecoder<A>,
  step: (state: S, read: A) => Step<S>
): LineReader<S> => {
  const decode = Schema.decodeUnknownOption(schema)
  return (state, line) =>
    Option.match(decode(line), { onNone: () => [[], state], onSome: (read) => step(state, read) })
}

/** Reads a line by its `type`, and passes over a type that is not there. */
export const byType =
  <S>(kinds: Readonly<Record<string, LineReader<S>>>): LineReader<S> =>
  (state, line) => {
    const { type } = line as { readonly type?: unknown }
    const read = typeof type === "string" && Object.hasOwn(kinds, type) ? kinds[type] : undefined
    return read === undefined ? [[], state] : read(state, line)
  }

/** A reader from a state, a step and an ending. */
export const make = <S>(options: {
  readonly initial: S
  readonly feed: (state: S, text: string) => Step<S>
  readonly end: (state: S) => AgentOutcome
}): AgentReader => {
  const at = (state: S): AgentReader => ({
    feed: (text) => {
      const [events, next] = options.feed(state, text)
      return [events, at(next)]
    },
    end: () => options.end(state)
  })
  return at(options.initial)
}

/** For agents that print one thing at their end. */
export const whole = (parse: (output: string) => AgentOutcome): AgentReader =>
  make<Pending>({
    initial: nothing,
    feed: (pending, text) => [[], more(pending, text, wholeCharsMax)],
    end: ({ chars, text }) =>
      chars > wholeCharsMax
        ? unreadable(`it wrote ${chars} characters, and ${wholeCharsMax} are the most that are read`)
        : parse(text)
  })

/** Of a command that somebody seals without an agent: its output is for people. */
export const unread: AgentReader = make({
  initial: undefined,
  feed: () => [[], undefined],
  end: () => Result.succeed({ text: "" })
})

/** What has come and was not read yet; beyond a limit only counted. Strings are joined without being copied. */
interface Pending {
  readonly text: string
  readonly chars: number
}

const nothing: Pending = { text: "", chars: 0 }

const more = ({ chars, text }: Pending, piece: string, charsMax: number): Pending => {
  const now = chars + piece.length
  return { chars: now, text: now > charsMax ? "" : text + piece }
}

interface Lines<S> {
  readonly state: S
  readonly pending: Pending
  readonly tooLong: number
}

/**
 * For agents that print one JSON object a line. A line that is none, or is longer than {@link lineCharsMax}, is passed
 * over; the last one counts without a line break.
 */
export const jsonLines = <S>(options: {
  readonly initial: S
  readonly line: LineReader<S>
  readonly end: (state: S) => AgentOutcome
}): AgentReader => {
  const over = ({ pending, state, tooLong }: Lines<S>): Step<Lines<S>> => {
    if (pending.chars > lineCharsMax) return [[], { state, pending: nothing, tooLong: tooLong + 1 }]
    const value = jsonOf(pending.text)
    if (value === undefined) return [[], { state, pending: nothing, tooLong }]
    const [events, next] = options.line(state, value)
    return [events, { state: next, pending: nothing, tooLong }]
  }
  return make<Lines<S>>({
    initial: { state: options.initial, pending: nothing, tooLong: 0 },
    feed: (before, text) => {
      const events: Array<AgentEvent> = []
      let lines = before
      let start = 0
      for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", start)) {
        const [found, next] = over({
          ...lines,
          pending: more(lines.pending, text.slice(start, at), lineCharsMax)
        })
        for (const event of found) events.push(event)
        lines = next
        start = at + 1
      }
      return [events, { ...lines, pending: more(lines.pending, text.slice(start), lineCharsMax) }]
    },
    end: (lines) => {
      const [, { state, tooLong }] = over(lines)
      return tooLong === 0 ? options.end(state) : Result.mapError(options.end(state), alsoTooLong(tooLong))
    }
  })
}

const alsoTooLong = (lines: number) => (failed: AgentFailed) =>
  new AgentFailed({
    code: failed.code,
    detail: `${failed.detail}; ${lines} of its lines were longer than ${lineCharsMax} characters`,
    textSoFar: failed.textSoFar
  })

/** All of an output at once. */
export const read = (reader: AgentReader, output: string): AgentOutcome => reader.feed(output)[1].end()

/** The first 120 characters, on one line. */
export const excerpt = (text: string): string => {
  const flat = text.slice(0, 400).replace(/\s+/gu, " ")
  return flat.length > 120 ? `${flat.slice(0, 120)}…` : flat
}

/** `undefined` where it is no JSON object, or one that nobody could write down again. */
const jsonOf = (line: string): unknown => {
  if (!line.trimStart().startsWith("{")) return undefined
  try {
    const value = JSON.parse(line) as unknown
    return line.length > depthMax && isDeeper(value, depthMax) ? undefined : value
  } catch {
    return undefined
  }
}

/** Without recursion, which is what too much depth breaks. */
const isDeeper = (value: unknown, max: number): boolean => {
  let level: ReadonlyArray<unknown> = [value]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > max) return true
    level = level.flatMap((one) => (typeof one === "object" && one !== null ? Object.values(one) : []))
  }
  return false
}
