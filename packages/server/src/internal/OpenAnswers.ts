/**
 * Limits what the callers of a server hold by not reading: connections, and answers in memory.
 *
 * The platform would keep an answer until it is read, without an end. So an account has a number of requests at a time,
 * a large answer is written in pieces and ends if no piece is read for a while, and the size of unread answers is
 * limited.
 */
import { Effect, Ref, type Scope, Stream } from "effect"
import { HttpBody, type HttpServerRequest, HttpServerResponse } from "effect/http"
import type { ServerLimits } from "../ServerLimits.ts"
import * as Problem from "./Problem.ts"
import * as SseResponse from "./SseResponse.ts"

/** Size of a piece. A smaller answer is written at once: it waits in the buffers of the connection. */
const pieceBytes = 64 * 1024

/** Seconds after which a client may try again. */
const retrySeconds = 5

/** Requests and unread answers of an account. */
interface Held {
  readonly requests: number
  readonly bytes: number
}

const none: Held = { requests: 0, bytes: 0 }

/** Returns the pieces of an answer, without copies. */
export const piecesOf = (bytes: Uint8Array): ReadonlyArray<Uint8Array> =>
  Array.from({ length: Math.ceil(bytes.byteLength / pieceBytes) }, (_, at) =>
    bytes.subarray(at * pieceBytes, (at + 1) * pieceBytes)
  )

export const make = Effect.fnUntraced(function* (limits: ServerLimits) {
  const held = yield* Ref.make<ReadonlyMap<string, Held>>(new Map())

  /** Adds to what an account has until the scope closes, if it may. */
  const hold = (account: string, more: Held, isAllowed: (own: Held, all: Iterable<Held>) => boolean) =>
    Effect.acquireRelease(
      Ref.modify(held, (before): readonly [boolean, ReadonlyMap<string, Held>] => {
        const own = before.get(account) ?? none
        return isAllowed(own, before.values()) ? [true, changed(before, account, more, 1)] : [false, before]
      }),
      (isHeld) => (isHeld ? Ref.update(held, (before) => changed(before, account, more, -1)) : Effect.void)
    )

  /** Takes a place for a request of an account until its answer is written. */
  const enter = (account: string) =>
    Effect.flatMap(
      hold(account, { requests: 1, bytes: 0 }, ({ requests }) => requests < limits.requestsPerAccountMax),
      (isHeld) =>
        isHeld
          ? Effect.void
          : Problem.retryLater(
              Problem.make(
                "rate_limit",
                "TooManyOpen",
                `this account may have ${limits.requestsPerAccountMax} requests at a time. Read or close their answers first`
              ),
              retrySeconds
            )
    )

  /** Writes an answer in pieces if it is large. */
  const paced = Effect.fnUntraced(function* (
    account: string,
    response: HttpServerResponse.HttpServerResponse
  ): Effect.fn.Return<
    HttpServerResponse.HttpServerResponse,
    typeof Problem.Unavailable.Type,
    HttpServerRequest.HttpServerRequest | Scope.Scope
  > {
    const { body } = response
    if (body._tag !== "Uint8Array" || body.contentLength <= pieceBytes) return response
    const size = body.contentLength
    const isHeld = yield* hold(account, { requests: 0, bytes: size }, ({ bytes }, accounts) => {
      const all = [...accounts].reduce((sum, account) => sum + account.bytes, 0)
      // An answer that is larger than the limit passes alone.
      return (
        (bytes === 0 || bytes + size <= limits.unreadBytesPerAccountMax) &&
        (all === 0 || all + size <= limits.unreadBytesMax)
      )
    })
    if (!isHeld)
      return yield* Problem.retryLater(
        Problem.make(
          "unavailable",
          "TooMuchUnread",
          "too many large answers of this server are not read yet. Read those of this account first, or try again later"
        ),
        retrySeconds
      )
    const taken = yield* SseResponse.endWhenStalled(limits.streamIdleSecondsMax)
    // One at a time: the next one is taken when the reader has room for it.
    const pieces = Stream.fromIterable(piecesOf(body.body)).pipe(
      Stream.rechunk(1),
      Stream.tap(() => taken)
    )
    return HttpServerResponse.setBody(response, HttpBody.stream(pieces, body.contentType, size))
  })

  return { enter, paced }
})

const changed = (
  before: ReadonlyMap<string, Held>,
  account: string,
  { bytes, requests }: Held,
  sign: 1 | -1
): ReadonlyMap<string, Held> => {
  const own = before.get(account) ?? none
  const next = { requests: own.requests + sign * requests, bytes: own.bytes + sign * bytes }
  const after = new Map(before)
  if (next.requests === 0 && next.bytes === 0) after.delete(account)
  else after.set(account, next)
  return after
}
