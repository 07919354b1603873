/**
 * One question to a model, and what is remembered of a conversation.
 *
 * What goes into the history is made fit for any API: ids of its own for every call, names that are names, arguments
 * that are a JSON object. A model that writes nonsense must not make the next question invalid.
 */
import { Duration, Effect, Result, Stream } from "effect"
import * as ChatModel from "../ChatModel.ts"
import { excerpt } from "../Excerpt.ts"
import type { HostTool, LoopLimits, LoopOptions, LoopUsage, LoopVerdict, Tell } from "../HostLoop.ts"

/** What a loop knows of itself; it is asked for also where the loop is cut short. */
export interface Talk {
  readonly messages: Array<ChatModel.ChatMessage>
  contextBytes: number
  steps: number
  toolCalls: number
  invalidCalls: number
  text: string
  usage: { inputTokens: number; outputTokens: number }
  /** A call that was begun, and has no answer yet. */
  open: { readonly id: string; readonly name: string; readonly startedMs: number } | undefined
  readonly callIds: Set<string>
}

/** A call of the model's, read. */
export interface ReadCall {
  /** As it is in the history. */
  readonly told: ChatModel.ChatToolCall
  readonly input: Readonly<Record<string, unknown>>
  /** What it does, or what is wrong with it. */
  readonly prepared: ReturnType<HostTool["prepare"]>
}

export interface Answer {
  readonly text: string
  readonly toolCalls: ReadonlyArray<ReadCall>
  readonly finish: ChatModel.ChatFinish
  readonly usage: LoopUsage
}

export const makeTalk = (messages: ReadonlyArray<ChatModel.ChatMessage>): Talk => {
  const talk: Talk = {
    messages: [],
    contextBytes: 0,
    steps: 0,
    toolCalls: 0,
    invalidCalls: 0,
    text: "",
    usage: { inputTokens: 0, outputTokens: 0 },
    open: undefined,
    callIds: new Set()
  }
  for (const message of messages) remember(talk, message)
  return talk
}

export const remember = (talk: Talk, message: ChatModel.ChatMessage): void => {
  talk.messages.push(message)
  talk.contextBytes += textBytes(message.content)
  if (message.role !== "assistant") return
  for (const call of message.toolCalls ?? []) {
    talk.callIds.add(call.id)
    talk.contextBytes += ChatModel.bytesOf({ type: "tool_call", ...call })
  }
}

// -----------------------------------------------------------------------------
// asking
// -----------------------------------------------------------------------------

/** What an answer's bytes come to at least, where nobody counted: few tokens have more than four. */
const bytesPerToken = 4

interface Heard {
  text: string
  bytes: number
  calls: Array<ChatModel.ChatToolCall>
  finish: ChatModel.ChatFinish
  inputTokens: number | undefined
  outputTokens: number | undefined
}

/** Ask, and ask again where the model cannot answer now and nothing of an answer has come. */
export const ask = (
  chat: ChatModel.ChatModel["Service"],
  options: LoopOptions,
  limits: LoopLimits,
  talk: Talk,
  tell: Tell
): Effect.Effect<Answer, ChatModel.ChatModelFailed> => {
  const request: ChatModel.ChatRequest = {
    model: options.model,
    messages: [...talk.messages],
    tools: options.tools.map(({ description, inputSchema, name }) => ({ name, description, inputSchema })),
    ...(limits.answerTokensMax === undefined
      ? {}
      : {
          outputTokensMax: Math.max(
            1,
            Math.min(limits.answerTokensMax, limits.outputTokensMax - talk.usage.outputTokens)
          )
        })
  }
  const attempt = (number: number): Effect.Effect<Heard, ChatModel.ChatModelFailed> =>
    Effect.suspend(() => {
      const heard: Heard = {
        text: "",
        bytes: 0,
        calls: [],
        finish: "other",
        inputTokens: undefined,
        outputTokens: undefined
      }
      return listen(chat.stream(request, options.at), limits, talk, heard, tell).pipe(
        // What was heard of an answer has been paid for, however it ended.
        Effect.ensuring(Effect.sync(() => count(talk, heard))),
        Effect.as(heard),
        Effect.catch((error) =>
          error.isRetryable && number < limits.attemptsMax && heard.bytes === 0
            ? Effect.andThen(
                Effect.sleep(Duration.seconds(pause(number, error, limits.retrySecondsMax))),
                attempt(number + 1)
              )
            : Effect.fail(error)
        )
      )
    })
  return Effect.map(attempt(1), (heard) => ({
    text: heard.text,
    finish: heard.finish,
    usage: usageOf(heard),
    toolCalls: heard.calls.map((call) => read(call, options.tools, talk))
  }))
}

const listen = (
  answer: Stream.Stream<ChatModel.ChatPart, ChatModel.ChatModelFailed>,
  limits: LoopLimits,
  talk: Talk,
  heard: Heard,
  tell: Tell
): Effect.Effect<void, ChatModel.ChatModelFailed> =>
  Stream.runForEach(ChatModel.bounded(answer, limits.answer), (part) => {
    heard.bytes += ChatModel.bytesOf(part)
    switch (part.type) {
      case "text_delta":
        heard.text += part.delta
        talk.text = heard.text
        return part.delta === "" ? Effect.void : tell({ type: "text_delta", delta: part.delta })
      case "tool_call":
        heard.calls.push({ id: part.id, name: part.name, arguments: part.arguments })
        return Effect.void
      case "usage":
        heard.inputTokens = part.inputTokens
        heard.outputTokens = part.outputTokens
        return Effect.void
      case "finish":
        heard.finish = part.reason
        return Effect.void
    }
  })

const usageOf = (heard: Heard): LoopUsage => ({
  inputTokens: heard.inputTokens ?? 0,
  outputTokens: heard.outputTokens ?? Math.ceil(heard.bytes / bytesPerToken)
})

const count = (talk: Talk, heard: Heard): void => {
  const { inputTokens, outputTokens } = usageOf(heard)
  talk.usage.inputTokens += inputTokens
  talk.usage.outputTokens += outputTokens
}

/** Twice as long each time, or as long as the upstream asks for; never longer than is borne. */
const pause = (attempt: number, error: ChatModel.ChatModelFailed, secondsMax: number): number =>
  Math.min(secondsMax, Math.max(2 ** (attempt - 1), error.retryAfterSeconds ?? 0))

// -----------------------------------------------------------------------------
// reading
// -----------------------------------------------------------------------------

/** What of nonsense is told again, to the model and to whoever watches. */
const malformedBytesMax = 500

const plainName = /^[A-Za-z0-9_-]{1,64}$/u
const plainId = /^[\x21-\x7e]{1,128}$/u

const read = (call: ChatModel.ChatToolCall, tools: ReadonlyArray<HostTool>, talk: Talk): ReadCall => {
  const id = freshId(call.id, talk)
  const tool = tools.find(({ name }) => name === call.name)
  if (tool === undefined) {
    const name = plainName.test(call.name)
      ? call.name
      : call.name.replaceAll(/[^A-Za-z0-9_-]/gu, "_").slice(0, 64) || "unnamed"
    const known = tools.map((other) => other.name).join(", ")
    return unreadable(id, name, call.arguments, `there is no tool ${name}. There are: ${known}`)
  }
  const parsed = parse(call.arguments)
  if (parsed === undefined) {
    return unreadable(id, tool.name, call.arguments, "the arguments are no JSON object. Write one")
  }
  const prepared = tool.prepare(parsed)
  return Result.isFailure(prepared)
    ? unreadable(id, tool.name, call.arguments, `the arguments are refused: ${prepared.failure}`)
    : { told: { id, name: tool.name, arguments: call.arguments }, input: parsed, prepared }
}

/** What was written is told back in a form that any API takes, however deep or long it was. */
const unreadable = (id: string, name: string, written: string, problem: string): ReadCall => {
  const input = { malformed: excerpt(written, malformedBytesMax).text }
  return {
    told: { id, name, arguments: JSON.stringify(input) },
    input,
    prepared: Result.fail(excerpt(problem, 4 * malformedBytesMax).text)
  }
}

const parse = (text: string): Readonly<Record<string, unknown>> | undefined => {
  try {
    const parsed: unknown = JSON.parse(text)
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed)
      ? (parsed as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}

/** A model's own id, where it is one and names nothing else of this conversation. */
const freshId = (given: string, talk: Talk): string => {
  let id = given
  for (let next = talk.callIds.size + 1; !plainId.test(id) || talk.callIds.has(id); next += 1)
    id = `call_${next}`
  talk.callIds.add(id)
  return id
}

// -----------------------------------------------------------------------------
// judging
// -----------------------------------------------------------------------------

/** What an answer that asks for nothing more comes to. */
export const judge = ({ finish, text }: Answer): LoopVerdict => {
  switch (finish) {
    case "stop":
      return { outcome: "finished" }
    case "length":
      return { outcome: "output_tokens_exhausted" }
    case "content_filter":
      return {
        outcome: "model_failed",
        error: ChatModel.failed("refused", "a filter stopped the answer, or the model would not give one")
      }
    default:
      return text === ""
        ? {
            outcome: "model_failed",
            error: ChatModel.failed("invalid_answer", "the answer says nothing, and asks for nothing")
          }
        : { outcome: "finished" }
  }
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const encoder = new TextEncoder()

const textBytes = (text: string): number => encoder.encode(text).byteLength
