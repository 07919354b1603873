/**
 * Messages and replies as lines of JSON: the simplest channel, for programs that have their own connection to users.
 *
 *     {"channel":"telegram","senderId":"12345","text":"run the tests","messageId":"m-1"}
 *     {"messageId":"m-1","ok":true,"text":"…","agent":"coder","key":"telegram:12345:coder","executor":"sandbox",…}
 *
 * An invalid or oversized line gets a failure as its answer. Replies are written as soon as they are ready, so a client
 * that needs to match them sets a `messageId`. IDs may be integers, because many messengers use integers.
 */
import { Effect, Option, Schema, Semaphore, Stream, Struct } from "effect"
import * as ByteLines from "@cogni/sandbox-loop/ByteLines"
import { MessageError, MessageInvalid } from "./MessageError.ts"
import { MessageRouter } from "./MessageRouter.ts"
import { textBytesMax } from "./Orchestrator.ts"

/** The longest line: room for a message whose text JSON escapes completely. */
export const lineBytesMax = 6 * textBytesMax + 8192

/**
 * Concurrent messages, including those that wait for their turn; no further lines are read meanwhile. This is more than
 * all sessions together may have by default (20 × 32), so that two busy senders cannot block all others.
 */
export const messagesConcurrentMax = 1024

export interface Lines<E, E2> extends ByteLines.ByteLines<E, E2> {
  /** Replaces the names of options in error messages with the words of the program's users. */
  readonly wording?: ((message: string) => string) | undefined
  /** Adds `demo: true` to every answer, because no model is asked (default false). */
  readonly demo?: boolean | undefined
}

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))

const refusal = (problem: string) => new MessageError({ reason: new MessageInvalid({ problems: [problem] }) })

const tooLong = refusal(`the line is longer than ${lineBytesMax} bytes`)
const noJson = refusal('expected a line of JSON: {"channel":"…","senderId":"…","text":"…"}')

/** Answers messages until the input ends and every message has its reply. */
export const serve = Effect.fnUntraced(function* <E, E2>({
  demo = false,
  input,
  wording = (message) => message,
  write
}: Lines<E, E2>) {
  const router = yield* MessageRouter
  const lock = yield* Semaphore.make(1)
  const mark = demo ? { demo: true } : {}

  const handle = (line: string | undefined, asked: Option.Option<unknown>) => {
    if (line === undefined) return Effect.fail(tooLong)
    if (Option.isNone(asked)) return Effect.fail(noJson)
    return router.handle(withText(asked.value) as Parameters<typeof router.handle>[0])
  }

  const answer = (line: string | undefined) => {
    const asked = line === undefined ? Option.none() : parse(line)
    return handle(line, asked).pipe(
      Effect.match({
        onSuccess: (reply) => ({ ok: true, ...Struct.omit(reply, ["messageId"]) }),
        onFailure: ({ agent, isRetryable, key, message, reason }) => ({
          ok: false,
          agent,
          key,
          error: { reason: reason._tag, message: wording(message), isRetryable }
        })
      }),
      Effect.map(
        (told) => `${JSON.stringify({ messageId: idOf(Option.getOrUndefined(asked)), ...told, ...mark })}\n`
      )
    )
  }

  yield* ByteLines.read(input, lineBytesMax).pipe(
    Stream.mapEffect((line) => Effect.flatMap(answer(line), (told) => lock.withPermit(write(told))), {
      concurrency: messagesConcurrentMax,
      unordered: true
    }),
    Stream.runDrain
  )
})

/** Converts integer IDs to strings, and leaves everything else unchanged. */
const withText = (asked: unknown): unknown => {
  if (typeof asked !== "object" || asked === null) return asked
  const ids = Object.entries(asked).filter(
    ([key, value]) => (key === "senderId" || key === "messageId") && Number.isSafeInteger(value)
  )
  return ids.length === 0
    ? asked
    : { ...asked, ...Object.fromEntries(ids.map(([key, value]) => [key, String(value)])) }
}

/** Returns the ID as sent, even for a refused message, so that the sender can match the answer. */
const idOf = (asked: unknown): string | number | undefined => {
  if (typeof asked !== "object" || asked === null || !("messageId" in asked)) return undefined
  const { messageId } = asked
  if (typeof messageId === "number") return messageId
  return typeof messageId === "string" ? messageId.slice(0, 256) : undefined
}
