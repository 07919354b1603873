/**
 * Reads the counters of all containers of this process again and again: often while they change, and rarely while they
 * do not. Most containers wait most of the time, for a model or for a person.
 *
 * Samples are needed for a container that ends without a word, because its control group is removed before its exit is
 * reported. One that reports its exit, and one that this process ends, is read at that moment.
 */
import { Clock, Effect, Queue, type Scope } from "effect"

/** Shortest pause between two samples of a container, in milliseconds. */
export const pauseMillisMin = 5

/** Longest pause between two samples of a container, in milliseconds: after some seconds without a change. */
export const pauseMillisMax = 2000

/** Number of containers above which each is sampled less often. A sample takes about 40 microseconds. */
const frequentlyReadMax = 4

interface Followed {
  readonly sample: () => boolean
  pauseMillis: number
  dueMillis: number
}

export interface KernelSamples {
  /** Takes samples of a container until the scope closes. `sample` returns whether a value has changed. */
  readonly follow: (sample: () => boolean) => Effect.Effect<void, never, Scope.Scope>
}

const nowMillis = Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos) / 1e6)

export const make: Effect.Effect<KernelSamples, never, Scope.Scope> = Effect.gen(function* () {
  const followed = new Set<Followed>()
  const wake = yield* Queue.sliding<void>(1)

  /** Shortest pause of one container, so that all of them together are not read more often than a few are. */
  const shortest = () => pauseMillisMin * Math.max(1, followed.size / frequentlyReadMax)

  /** Takes the samples that are due, or nearly. Returns the milliseconds until the next is; `undefined`: none is. */
  const round = (now: number): number | undefined => {
    const pause = shortest()
    let nextMillis: number | undefined
    for (const one of followed) {
      if (one.dueMillis <= now + pause / 2) {
        one.pauseMillis = one.sample()
          ? pause
          : Math.min(pauseMillisMax, Math.max(pause, 2 * one.pauseMillis))
        one.dueMillis = now + one.pauseMillis
      }
      nextMillis = Math.min(nextMillis ?? Infinity, one.dueMillis - now)
    }
    return nextMillis
  }

  yield* Effect.forkScoped(
    Effect.forever(
      Effect.gen(function* () {
        const nextMillis = round(yield* nowMillis)
        const woken = Queue.take(wake)
        yield* nextMillis === undefined ? woken : Effect.raceFirst(woken, Effect.sleep(nextMillis))
      })
    )
  )
  return {
    follow: (sample) =>
      Effect.acquireRelease(
        Effect.gen(function* () {
          const dueMillis = (yield* nowMillis) + pauseMillisMin
          const one: Followed = { sample, pauseMillis: pauseMillisMin, dueMillis }
          followed.add(one)
          yield* Queue.offer(wake, undefined)
          return one
        }),
        (one) => Effect.sync(() => followed.delete(one))
      ).pipe(Effect.asVoid)
  }
})
