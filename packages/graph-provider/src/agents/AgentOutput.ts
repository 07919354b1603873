/**
 * Parses an agent's output into events and an answer. Pure and incremental.
 *
 * A reader is a value: feeding it returns the events that it recognized, and the reader for the rest. Its input can
 * come from a hostile program, in pieces that end anywhere. It never throws: it skips anything that it cannot parse,
 * and ends with an answer or a failure.
 */
import { Data, Option, Result, Schema } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"

/** A number of tokens or attempts. */
export const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

/** Tokens, as the agent counted them. For people: the ledger has its own count. */
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

/** Events that an agent can cause. Only the host reports usage, errors and the end. */
export type AgentEvent = Extract<
  AiEvent,
  { readonly type: "text_delta" | "tool_call_start" | "tool_call_result" | "status" }
>

/** The events in a piece of output, and the reader for the next piece. */
export type Reading = Step<AgentReader>

export interface AgentReader {
  /** Reads a piece of text. Pieces end anywhere, but never inside a character. */
  readonly feed: (text: string) => Reading
  /** Ends the input. An error of the agent is a failure, never an answer. */
  readonly end: () => AgentOutcome
}

/** Maximum length of a line. Longer lines are skipped; a failure states how many. */
export const lineCharsMax = 4 * 1024 * 1024

/** Maximum nesting depth of a line's values. Deeper lines are skipped. */
export const depthMax = 256

/** Maximum length of an output that is parsed as a whole at its end. */
export const wholeCharsMax = 16 * 1024 * 1024

/** The agent gave no answer: it reported an error, or its output is unreadable. */
export class AgentFailed extends Data.TaggedError("AgentFailed")<{
  /** The agent's own code, or `unreadable`. */
  readonly code: string
  readonly detail: string
  /** Text of the answer until then. */
  readonly textSoFar: string
}> {
  override get message(): string {
    return `the agent gave no answer: ${this.detail} (${this.code})`
  }
}

/** The result of an agent's output: an answer, or the reason why it is missing. */
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

/** Combines two ends of one agent: the later one counts, unless the earlier one is a failure. */
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

/** Tokens of one call. `input` excludes tokens that were read from or written to a cache. */
const CallTokens = Schema.Struct({
  input: Count,
  output: Count,
  cacheRead: Schema.optionalKey(Count),
  cacheWrite: Schema.optionalKey(Count)
})

const decodeCallTokens = Schema.decodeUnknownOption(CallTokens)

/** Reads the tokens of one call in a format that several agents share. Zero in any other format. */
export const tokensOf = (written: unknown): Tokens =>
  Option.match(decodeCallTokens(written), {
    onNone: () => noTokens,
    onSome: ({ cacheRead = 0, cacheWrite = 0, input, output }) => ({
      inputTokens: input + cacheRead + cacheWrite,
      outputTokens: output
    })
  })

/** Returns the tokens of all calls; `undefined` for zero, because the agent did not count them. */
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

/** The result of a line of output: its events, and the next state. */
export type Step<S> = readonly [events: ReadonlyArray<AgentEvent>, next: S]

/** Reads a line of one kind. */
export type LineReader<S> = (state: S, line: unknown) => Step<S>

/** Reads values that match a schema, and skips all others. */
export const fitting = <S, A>(
  schema: Schema.ConstraintDecoder<A>,
  step: (state: S, read: A) => Step<S>
): LineReader<S> => {
  const decode = Schema.decodeUnknownOption(schema)
  return (state, line) =>
    Option.match(decode(line), { onNone: () => [[], state], onSome: (read) => step(state, read) })
}

/** Reads a line by its `type`, and skips unknown types. */
export const byType =
  <S>(kinds: Readonly<Record<string, LineReader<S>>>): LineReader<S> =>
  (state, line) => {
    const { type } = line as { readonly type?: unknown }
    const read = typeof type === "string" && Object.hasOwn(kinds, type) ? kinds[type] : undefined
    return read === undefined ? [[], state] : read(state, line)
  }

/** Creates a reader from an initial state, a step and an end. */
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

/** Creates a reader for agents that print one document at their end. */
export const whole = (parse: (output: string) => AgentOutcome): AgentReader =>
  make<Pending>({
    initial: nothing,
    feed: (pending, text) => [[], more(pending, text, wholeCharsMax)],
    end: ({ chars, text }) =>
      chars > wholeCharsMax
        ? unreadable(`it wrote ${chars} characters; the limit is ${wholeCharsMax}`)
        : parse(text)
  })

/** Reader of a sealed command without an agent: its output is for people. */
export const unread: AgentReader = make({
  initial: undefined,
  feed: () => [[], undefined],
  end: () => Result.succeed({ text: "" })
})

/** Text that is not parsed yet; beyond a limit, only its length. Strings are joined without being copied. */
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
 * Creates a reader for agents that print one JSON object per line. Other lines, and lines longer than
 * {@link lineCharsMax}, are skipped. The last line needs no line break.
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

/** Reads a whole output at once. */
export const read = (reader: AgentReader, output: string): AgentOutcome => reader.feed(output)[1].end()

/** Shortens a text to its first 120 characters, on one line. */
export const excerpt = (text: string): string => {
  const flat = text.slice(0, 400).replace(/\s+/gu, " ")
  return flat.length > 120 ? `${flat.slice(0, 120)}…` : flat
}

/** Returns `undefined` if the line is not a JSON object, or is nested too deeply to be serialized again. */
const jsonOf = (line: string): unknown => {
  if (!line.trimStart().startsWith("{")) return undefined
  try {
    const value = JSON.parse(line) as unknown
    return line.length > depthMax && isDeeper(value, depthMax) ? undefined : value
  } catch {
    return undefined
  }
}

/** Iterates: recursion would fail at great depth. */
const isDeeper = (value: unknown, max: number): boolean => {
  let level: ReadonlyArray<unknown> = [value]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > max) return true
    level = level.flatMap((one) => (typeof one === "object" && one !== null ? Object.values(one) : []))
  }
  return false
}
