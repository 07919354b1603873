/** Bounds calls of Temporal's client: a server that accepts a call and never answers cannot be reached. */
import { Effect } from "effect"
import { TemporalFailed } from "../TemporalServer.ts"

/** Longest time for the answer of Temporal, in seconds. */
export const answerSecondsMax = 5

/** A client or a connection of the SDK. */
interface Bounding {
  readonly withDeadline: <A>(deadline: number, task: () => Promise<A>) => Promise<A>
}

/** Calls Temporal. `what` completes "Temporal could not". The call itself ends at the same time. */
export const within = <A>(
  client: Bounding,
  what: string,
  task: () => Promise<A>,
  failed: (error: unknown) => TemporalFailed
): Effect.Effect<A, TemporalFailed> =>
  Effect.tryPromise({
    // By the clock of the system, as the SDK reads it: tests may have stopped the other one.
    try: () => client.withDeadline(Date.now() + answerSecondsMax * 1000, task),
    catch: failed
  }).pipe(bounded(what))

/** Fails like a server that cannot be reached, if there is no answer in time. */
export const bounded = (what: string) =>
  Effect.timeoutOrElse({ duration: `${answerSecondsMax} seconds`, orElse: () => Effect.fail(silent(what)) })

const silent = (what: string) =>
  TemporalFailed.of(
    what,
    new Error(`it did not answer in ${answerSecondsMax} seconds`, { cause: { code: 4 } })
  )
