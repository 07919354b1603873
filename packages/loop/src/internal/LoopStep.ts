/** One question to a model, and what its answer comes to. */
import { Duration, Effect, Stream } from "effect"
import * as ChatModel from "../ChatModel.ts"
import * as LoopCall from "./LoopCall.ts"
import type { LoopUsage, LoopVerdict } from "./LoopEvent.ts"
import type { Loop, Talk } from "./LoopTalk.ts"

export interface Answer {
  readonly text: string
  readonly toolCalls: ReadonlyArray<LoopCall.ReadCall>
  readonly finish: ChatModel.ChatFinish
  readonly usage: LoopUsage
}

/** What an answer's bytes come to at least, where nobody counted: few tokens have more than four. */
const bytesPerToken = 4

interface Heard {
  text: string
  bytes: number
  calls: Array<ChatModel.ChatToolCall>
  finish: ChatModel.ChatFinish
  /** As the upstream counted. */
  usage: Omit<Extract<ChatModel.ChatPart, { readonly type: "usage" }>, "type">
}

/** Ask, and ask again where the model cannot answer now and nothing of an answer has come. */
export const ask = (
  chat: ChatModel.ChatModel["Service"],
  loop: Loop
): Effect.Effect<Answer, ChatModel.ChatModelFailed> => {
  const { limits, talk } = loop
  const request: ChatModel.ChatRequest = {
    model: loop.model,
    messages: [...talk.messages],
    tools: loop.tools.map(({ description, inputSchema, name }) => ({ name, description, inputSchema })),
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
        usage: {}
      }
      return listen(chat.stream(request, loop.at), loop, heard).pipe(
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
    toolCalls: heard.calls.map((call) => LoopCall.read(call, loop))
  }))
}

const listen = (
  answer: Stream.Stream<ChatModel.ChatPart, ChatModel.ChatModelFailed>,
  { limits, talk, tell }: Loop,
  heard: Heard
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

/** What an upstream says, where that is a count: less than none would be taken off the others. */
const countOr = (said: number | undefined, otherwise: number): number =>
  said !== undefined && Number.isSafeInteger(said) && said >= 0 ? said : otherwise

const count = (talk: Talk, heard: Heard): void => {
  const { inputTokens, outputTokens } = usageOf(heard)
  talk.usage.inputTokens += inputTokens
  talk.usage.outputTokens += outputTokens
}

/** Twice as long each time, or as long as the upstream asks for; never longer than is borne. */
const pause = (attempt: number, error: ChatModel.ChatModelFailed, secondsMax: number): number =>
  Math.min(secondsMax, Math.max(2 ** (attempt - 1), error.retryAfterSeconds ?? 0))

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
