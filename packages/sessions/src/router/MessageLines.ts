/**
 * Messages and replies as lines of JSON: the simplest channel there is, for a program that has one of its own.
 *
 *     {"channel":"telegram","senderId":"12345","text":"run the tests","messageId":"m-1"}
 *     {"messageId":"m-1","ok":true,"text":"…","agent":"coder","key":"telegram:12345:coder","executor":"sandbox",…}
 *
 * A line that is no message, or too long for one, is answered as one that failed. Replies come as they are ready, so a
 * message that wants to know its own has an id. Ids may be whole numbers, as many messengers have them.
 */
import { Effect, Option, Schema, Semaphore, Stream, Struct } from "effect"
import * as ByteLines from "@cogni/sandbox-loop/ByteLines"
import { MessageError, MessageInvalid } from "./MessageError.ts"
import { MessageRouter } from "./MessageRouter.ts"
import { textBytesMax } from "./Orchestrator.ts"

/** One message, with room for all that JSON escapes of its text. */
export const lineBytesMax = 6 * textBytesMax + 8192

/**
 * Messages that are answered or wait for their turn at one time; further ones wait to be read. More than all sessions
 * may have where nobody has raised their number, or two senders who ask for much would keep all others waiting.
 */
export const messagesConcurrentMax = 1024

export type Lines<E, E2> = ByteLines.ByteLines<E, E2>

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))

const refusal = (problem: string) => new MessageError({ reason: new MessageInvalid({ problems: [problem] }) })

const tooLong = refusal(`a line has at most ${lineBytesMax} bytes, and this one has more`)
const noJson = refusal('expected a line of JSON: {"channel":"…","senderId":"…","text":"…"}')

/** Answer until the input ends and every message has its reply. */
export const serve = Effect.fnUntraced(function* <E, E2>({ input, write }: Lines<E, E2>) {
  const router = yield* MessageRouter
  const lock = yield* Semaphore.make(1)

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
          error: { reason: reason._tag, message, isRetryable }
        })
      }),
      Effect.map((told) => `${JSON.stringify({ messageId: idOf(Option.getOrUndefined(asked)), ...told })}\n`)
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

/** Its ids as text; whatever else it is stays what it is. */
const withText = (asked: unknown): unknown => {
  if (typeof asked !== "object" || asked === null) return asked
  const ids = Object.entries(asked).filter(
    ([key, value]) => (key === "senderId" || key === "messageId") && Number.isSafeInteger(value)
  )
  return ids.length === 0
    ? asked
    : { ...asked, ...Object.fromEntries(ids.map(([key, value]) => [key, String(value)])) }
}

/** As it was given, also of a message that is refused, so that whoever sent it knows which. */
const idOf = (asked: unknown): string | number | undefined => {
  if (typeof asked !== "object" || asked === null || !("messageId" in asked)) return undefined
  const { messageId } = asked
  if (typeof messageId === "number") return messageId
  return typeof messageId === "string" ? messageId.slice(0, 256) : undefined
}
