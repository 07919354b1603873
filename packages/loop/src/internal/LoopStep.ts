/** One request to a model, and the outcome of its answer. */
import { Duration, Effect, Stream } from "effect"
import type * as ChatModel from "../ChatModel.ts"
import type * as ChatMessage from "../ChatMessage.ts"
import * as ChatError from "../ChatError.ts"
import * as ChatBounds from "./ChatBounds.ts"
import * as LoopCall from "./LoopCall.ts"
import type { LoopUsage, LoopVerdict } from "../LoopEvent.ts"
import type { Loop, Talk } from "./LoopTalk.ts"

export interface Answer {
  readonly text: string
  readonly toolCalls: ReadonlyArray<LoopCall.ReadCall>
  readonly finish: ChatMessage.ChatFinish
  readonly usage: LoopUsage
}

/** Estimates the tokens of an uncounted answer. Few tokens have more than four bytes, so this is a lower bound. */
const bytesPerToken = 4

interface Heard {
  text: string
  bytes: number
  calls: Array<ChatMessage.ChatToolCall>
  finish: ChatMessage.ChatFinish
  /** As counted by the upstream. */
  usage: Omit<Extract<ChatMessage.ChatPart, { readonly type: "usage" }>, "type">
}

/** Sends a request. Retries a retryable failure, unless a part of an answer has arrived. */
export const ask = (
  chat: ChatModel.ChatModel["Service"],
  loop: Loop
): Effect.Effect<Answer, ChatError.ChatModelFailed> => {
  const { limits, talk } = loop
  const request: ChatModel.ChatRequest = {
    model: loop.model,
    messages: [...talk.messages],
    tools: loop.tools.offered.map(({ description, inputSchema, name }) => ({
      name,
      description,
      inputSchema
    })),
    ...(limits.answerTokensMax === undefined
      ? {}
      : {
          outputTokensMax: Math.max(
            1,
            Math.min(limits.answerTokensMax, limits.outputTokensMax - talk.usage.outputTokens)
          )
        })
  }
  const attempt = (number: number): Effect.Effect<Heard, ChatError.ChatModelFailed> =>
    Effect.suspend(() => {
      const heard: Heard = {
        text: "",
        bytes: 0,
        calls: [],
        finish: "other",
        usage: {}
      }
      return listen(chat.stream(request, loop.at), loop, heard).pipe(
        // Partial answers count too, because they are billed.
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
    toolCalls: heard.calls.map((call) => LoopCall.read(call, loop))
  }))
}

const listen = (
  answer: Stream.Stream<ChatMessage.ChatPart, ChatError.ChatModelFailed>,
  { limits, talk, tell }: Loop,
  heard: Heard
): Effect.Effect<void, ChatError.ChatModelFailed> =>
  Stream.runForEach(ChatBounds.bounded(answer, limits.answer), (part) => {
    heard.bytes += ChatBounds.bytesOf(part)
    switch (part.type) {
      case "text_delta":
        heard.text += part.delta
        talk.text = heard.text
        return part.delta === "" ? Effect.void : tell({ type: "text_delta", delta: part.delta })
      case "tool_call":
        heard.calls.push({ id: part.id, name: part.name, arguments: part.arguments })
        return Effect.void
      case "usage":
        heard.usage = part
        return Effect.void
      case "finish":
        heard.finish = part.reason
        return Effect.void
    }
  })

const usageOf = (heard: Heard): LoopUsage => ({
  inputTokens: countOr(heard.usage.inputTokens, 0),
  outputTokens: countOr(heard.usage.outputTokens, Math.ceil(heard.bytes / bytesPerToken))
})

/** Accepts only valid counts of an upstream: a negative one would reduce the total. */
const countOr = (said: number | undefined, otherwise: number): number =>
  said !== undefined && Number.isSafeInteger(said) && said >= 0 ? said : otherwise

const count = (talk: Talk, heard: Heard): void => {
  const { inputTokens, outputTokens } = usageOf(heard)
  talk.usage.inputTokens += inputTokens
  talk.usage.outputTokens += outputTokens
}

/** Doubles the delay each time, or uses the upstream's if it is longer, up to the limit. */
const pause = (attempt: number, error: ChatError.ChatModelFailed, secondsMax: number): number =>
  Math.min(secondsMax, Math.max(2 ** (attempt - 1), error.retryAfterSeconds ?? 0))

/** Returns the outcome of an answer without tool calls. */
export const judge = ({ finish, text }: Answer): LoopVerdict => {
  switch (finish) {
    case "stop":
      return { outcome: "finished" }
    case "length":
      return { outcome: "output_tokens_exhausted" }
    case "content_filter":
      return {
        outcome: "model_failed",
        error: ChatError.failed("refused", "a filter stopped the answer, or the model refused to answer")
      }
    default:
      return text === ""
        ? {
            outcome: "model_failed",
            error: ChatError.failed("invalid_answer", "the answer has no text and no tool calls")
          }
        : { outcome: "finished" }
  }
}
