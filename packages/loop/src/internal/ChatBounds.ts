/**
 * The limits of a chat model's answer, and how it fails beyond them.
 */
import { Duration, Effect, Stream } from "effect"
import * as Excerpt from "../Excerpt.ts"
import { type ChatPart } from "../ChatMessage.ts"
import type { ChatModelFailed } from "../ChatError.ts"
import { failed } from "../ChatError.ts"

/** Limits of one answer. */
export interface ChatLimits {
  /** Total of text, IDs, names and arguments, in UTF-8. */
  readonly answerBytesMax: number
  readonly toolCallsMax: number
  /** Time from the request to the end of its answer. */
  readonly callSecondsMax: number
}

export const defaultLimits: ChatLimits = {
  answerBytesMax: 4 * 1024 * 1024,
  toolCallsMax: 32,
  callSecondsMax: 600
}

/** Returns how many bytes of UTF-8 a part adds to the kept answer. */
export const bytesOf = (part: ChatPart): number => {
  switch (part.type) {
    case "text_delta":
      return Excerpt.bytesOf(part.delta)
    case "tool_call":
      return Excerpt.bytesOf(part.id) + Excerpt.bytesOf(part.name) + Excerpt.bytesOf(part.arguments)
    default:
      return 0
  }
}

/** Enforces limits and form on an answer: it ends in time, in exactly one `finish`, or fails. */
export const bounded = (
  answer: Stream.Stream<ChatPart, ChatModelFailed>,
  { answerBytesMax, callSecondsMax, toolCallsMax }: ChatLimits = defaultLimits
): Stream.Stream<ChatPart, ChatModelFailed> =>
  Stream.suspend(() => {
    let bytes = 0
    let toolCalls = 0
    let hasFinished = false
    const judge = (part: ChatPart): Effect.Effect<void, ChatModelFailed> => {
      if (hasFinished) return Effect.fail(failed("invalid_answer", "the answer went on after its end"))
      bytes += bytesOf(part)
      if (part.type === "tool_call") toolCalls += 1
      if (part.type === "finish") hasFinished = true
      return bytes > answerBytesMax
        ? Effect.fail(failed("answer_too_large", `the answer has more than ${answerBytesMax} bytes`))
        : toolCalls > toolCallsMax
          ? Effect.fail(failed("answer_too_large", `the answer has more than ${toolCallsMax} tool calls`))
          : Effect.void
    }
    const outOfTime = Effect.andThen(
      Effect.sleep(Duration.seconds(callSecondsMax)),
      Effect.fail(failed("timeout", `the answer was not complete after ${callSecondsMax} s`))
    )
    return answer.pipe(
      Stream.tap(judge),
      Stream.concat(
        Stream.suspend(() =>
          hasFinished ? Stream.empty : Stream.fail(failed("invalid_answer", "the answer broke off"))
        )
      ),
      Stream.interruptWhen(outOfTime)
    )
  })
