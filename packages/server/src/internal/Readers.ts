/** Places of those who read runs of a server as streams: limited for each grant, and for all of them. */
import { Effect, Ref } from "effect"
import type { ServerLimits } from "../ServerLimits.ts"
import * as Problem from "./Problem.ts"
import * as ServerMetrics from "./ServerMetrics.ts"

/** Seconds after which a client may try again. */
const retrySeconds = 5

const tooMany = Problem.make(
  "unavailable",
  "TooManyReaders",
  "too many readers follow runs of this server. Try again later, or read the run itself"
)

export const make = Effect.fnUntraced(function* ({ readersMax, readersPerGrantMax }: ServerLimits) {
  const readers = yield* Ref.make<ReadonlyMap<string, number>>(new Map())

  const arrive = (grantId: string) =>
    Ref.modify(readers, (before): readonly [boolean, ReadonlyMap<string, number>] => {
      const own = before.get(grantId) ?? 0
      const all = [...before.values()].reduce((sum, count) => sum + count, 0)
      return own >= readersPerGrantMax || all >= readersMax
        ? [false, before]
        : [true, new Map(before).set(grantId, own + 1)]
    }).pipe(Effect.tap((isTaken) => (isTaken ? ServerMetrics.readersChanged(1) : Effect.void)))

  const leave = (grantId: string) =>
    Ref.update(readers, (before) => {
      const left = (before.get(grantId) ?? 1) - 1
      const after = new Map(before)
      if (left > 0) after.set(grantId, left)
      else after.delete(grantId)
      return after
    }).pipe(Effect.andThen(ServerMetrics.readersChanged(-1)))

  return {
    /** Takes a place until the scope closes, or fails if all are taken. */
    join: (grantId: string) =>
      Effect.flatMap(
        Effect.acquireRelease(arrive(grantId), (isTaken) => (isTaken ? leave(grantId) : Effect.void)),
        (isTaken) => (isTaken ? Effect.void : Problem.retryLater(tooMany, retrySeconds))
      )
  }
})

export type Readers = Effect.Success<ReturnType<typeof make>>
