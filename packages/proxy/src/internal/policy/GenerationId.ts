/**
 * Reads the ID that an upstream gave a call from its answer, while the answer passes.
 *
 * OpenRouter keeps its record of a call under this ID and knows no other. It is in a header of every answer, also of
 * one that breaks off, and in the answer: its `id`, or the `id` in the first events of a stream. Nothing is held back,
 * and memory is bounded whatever an upstream sends.
 */
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as EventCutter from "./EventCutter.ts"
import * as JsonMember from "./JsonMember.ts"

export interface GenerationIdReader {
  readonly push: (piece: Uint8Array) => void
  readonly read: () => string | undefined
}

/** OpenRouter's format. Any other text of an upstream reaches neither the audit nor a request. */
const pattern = /^gen-[A-Za-z0-9_-]{1,128}$/u

/** Maximum size of an event, or of an `id`, that is parsed. */
const bytesMax = 64 * 1024

/** Events of a stream that may come before the first one with an ID. */
const eventsMax = 8

/** Returns the ID if it is one. */
export const valid = (found: unknown): string | undefined =>
  typeof found === "string" && pattern.test(found) ? found : undefined

/** Creates a reader of one answer. `header` is the value of the header with the ID, if the answer has one. */
export const makeReader = ({
  contentType,
  header
}: {
  readonly contentType: string
  readonly header: unknown
}): GenerationIdReader => {
  const told = valid(header)
  if (told !== undefined) return { push: () => undefined, read: () => told }
  return EventCutter.isEvents(contentType) ? makeEvents() : makeWhole()
}

const makeWhole = (): GenerationIdReader => {
  const member = JsonMember.make("id", 1024)
  return {
    push: member.push,
    read: () => {
      const { text } = member.end()
      return text === undefined ? undefined : valid(parsed(text))
    }
  }
}

const makeEvents = (): GenerationIdReader => {
  let found: string | undefined
  let seen = 0
  const isOver = () => found !== undefined || seen >= eventsMax
  const cutter = EventCutter.make({
    bytesMax,
    holds: false,
    look: (event) => {
      if (isOver()) return false
      seen += 1
      found = idOf(event)
      return false
    }
  })
  return {
    push: (piece) => {
      if (!isOver()) cutter.push(piece)
    },
    read: () => found
  }
}

/** The ID is that of the chunk, of the message that it starts, or of the response that it creates. */
const idOf = (event: Buffer): string | undefined => {
  const body = parsed(EventCutter.dataOf(event))
  return [body, memberOf(body, "message"), memberOf(body, "response")]
    .map((one) => valid(memberOf(one, "id")))
    .find((id) => id !== undefined)
}

const memberOf = (value: unknown, name: string): unknown =>
  Predicate.hasProperty(value, name) ? value[name] : undefined

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))

const parsed = (text: string): unknown => Option.getOrUndefined(decode(text))
