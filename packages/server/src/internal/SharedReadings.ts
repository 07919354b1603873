/**
 * Shares one reading of a store among those who ask for the same thing at about the same time.
 *
 * No answer is older than its question: someone who asks while a reading is under way shares the next one. So a grant
 * that was revoked before a request came is found revoked, as if each request read on its own. No answer is kept. A
 * reading runs in the fiber of one of those who share it. If that one is interrupted, another reads again.
 */
import { Deferred, Effect, Exit } from "effect"

/** Longest wait for the reading under way, in milliseconds. It may be stuck, so another one then begins. */
export const patienceMillis = 100

/** One who waits for an answer, or for its turn to read for all who wait. */
interface Waiting<A, E> {
  readonly told: Deferred.Deferred<Exit.Exit<A, E> | "read">
  state: "waiting" | "reads" | "left"
}

/** The readings of one key. */
interface Readings<A, E> {
  underWay: number
  /** Those who asked after the last reading began. */
  waiting: Set<Waiting<A, E>>
  /** Whether one of them begins another reading after the longest wait. */
  isTimed: boolean
}

/** Returns how to read. All readings with one key must read the same. */
export const make = <A, E>() => {
  const all = new Map<string, Readings<A, E>>()

  const tell = (one: Waiting<A, E>, told: Exit.Exit<A, E> | "read") =>
    Deferred.doneUnsafe(one.told, Exit.succeed(told))

  /** Lets one of those who wait read, or removes a key without readings. */
  const proceed = (key: string, readings: Readings<A, E>) => {
    const [next] = readings.waiting
    if (next !== undefined) {
      readings.waiting.delete(next)
      readings.underWay += 1
      next.state = "reads"
      tell(next, "read")
    } else if (readings.underWay === 0) all.delete(key)
  }

  /** Reads for all who wait, also for those who ask before the event loop goes on. */
  const lead = (
    key: string,
    readings: Readings<A, E>,
    reading: Effect.Effect<A, E>,
    restore: (effect: Effect.Effect<A, E>) => Effect.Effect<A, E>
  ) => {
    let sharing: ReadonlySet<Waiting<A, E>> = new Set()
    const begin = Effect.suspend(() => {
      sharing = readings.waiting
      readings.waiting = new Set()
      readings.isTimed = false
      return reading
    })
    const end = (exit: Exit.Exit<A, E>) => {
      readings.underWay -= 1
      const left = [...sharing].filter(({ state }) => state === "waiting")
      // Without an answer, another of them reads.
      if (Exit.hasInterrupts(exit)) readings.waiting = new Set([...left, ...readings.waiting])
      else for (const one of left) tell(one, exit)
      proceed(key, readings)
    }
    return Effect.onExit(restore(Effect.andThen(Effect.yieldNow, begin)), (exit) =>
      // The one that read goes on first: it asked first.
      Effect.sync(() => queueMicrotask(() => end(exit)))
    )
  }

  /** Waits for the turn of `one`, and no longer than the longest wait if no other does so. */
  const turnOf = (readings: Readings<A, E>, one: Waiting<A, E>) => {
    const told = Deferred.await(one.told)
    if (readings.isTimed) return told
    readings.isTimed = true
    return Effect.timeoutOrElse(told, {
      duration: `${patienceMillis} millis`,
      orElse: () =>
        Effect.suspend(() => {
          // It may share a reading that has begun meanwhile.
          if (!readings.waiting.delete(one)) return told
          readings.underWay += 1
          one.state = "reads"
          return Effect.succeed("read" as const)
        })
    })
  }

  const leave = (key: string, readings: Readings<A, E>, one: Waiting<A, E>) =>
    Effect.sync(() => {
      const wasNext = one.state === "reads"
      one.state = "left"
      readings.waiting.delete(one)
      // The next one to come is timed: this one may have been.
      readings.isTimed = false
      if (!wasNext) return
      readings.underWay -= 1
      proceed(key, readings)
    })

  return (key: string, reading: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const known = all.get(key)
        if (known === undefined) {
          const readings: Readings<A, E> = { underWay: 1, waiting: new Set(), isTimed: false }
          all.set(key, readings)
          return lead(key, readings, reading, restore)
        }
        const one: Waiting<A, E> = { told: Deferred.makeUnsafe(), state: "waiting" }
        known.waiting.add(one)
        return restore(turnOf(known, one)).pipe(
          Effect.onInterrupt(() => leave(key, known, one)),
          Effect.flatMap((told) => (told === "read" ? lead(key, known, reading, restore) : told))
        )
      })
    )
}
