/** Answers with server-sent events: heartbeats for a quiet stream, and an end for a reader that does not read. */
import { Effect, Fiber, Option, type Scope, Stream } from "effect"
import type { ServerLimits } from "../ServerLimits.ts"
import * as EventStream from "./EventStream.ts"

const utf8 = new TextEncoder()

/**
 * Merges the text of a stream with regular heartbeat comments. Buffers nothing for a slow reader. Ends with the stream.
 */
export const make = Effect.fnUntraced(function* <R>(
  begin: string,
  texts: Stream.Stream<string | Uint8Array, never, R>,
  { heartbeatSeconds, streamIdleSecondsMax }: ServerLimits
): Effect.fn.Return<Stream.Stream<Uint8Array, never, R>, never, Scope.Scope> {
  const taken = yield* endWhenStalled(streamIdleSecondsMax)
  const bytes = texts.pipe(Stream.map((text) => (typeof text === "string" ? utf8.encode(text) : text)))
  const heartbeats = Stream.tick(`${heartbeatSeconds} seconds`).pipe(
    Stream.drop(1),
    Stream.map(() => utf8.encode(EventStream.heartbeat))
  )
  return Stream.make(utf8.encode(begin)).pipe(
    Stream.concat(Stream.merge(bytes, heartbeats, { haltStrategy: "left" })),
    Stream.tap(() => taken)
  )
})

/**
 * Ends the request if its stream was not read for `secondsMax`. For a stream that always has something to read, such as
 * heartbeats: then an unread one means a reader that does not read, for which the platform would wait without limit.
 * Returns what to do with each piece.
 */
export const endWhenStalled = Effect.fnUntraced(function* (secondsMax: number) {
  const request = Option.getOrUndefined(Option.fromUndefinedOr(Fiber.getCurrent()))
  let pieces = 0
  const watch: Effect.Effect<void> = Effect.suspend(() => {
    const before = pieces
    return Effect.sleep(`${secondsMax} seconds`).pipe(
      Effect.flatMap(() => (pieces === before ? Effect.sync(() => request?.interruptUnsafe()) : watch))
    )
  })
  yield* Effect.forkScoped(watch)
  return Effect.sync(() => {
    pieces += 1
  })
})
