/**
 * Reads the counters of all containers of this process again and again: often while they change, and rarely while they
 * do not. Most containers wait most of the time, for a model or for a person.
 *
 * Samples are needed for a container that ends without a word, because its control group is removed before its exit is
 * reported. One that reports its exit, and one that this process ends, is read at that moment.
 */
import * as MonotonicTime from "@cogni/sandbox-core/MonotonicTime"
import { Effect, Queue, type Scope } from "effect"

/** Shortest pause between two samples of a container, in milliseconds. */
export const pauseMillisMin = 5

/** Longest pause between two samples of a container, in milliseconds: after some seconds without a change. */
export const pauseMillisMax = 2000

/**
 * The same for a container whose most processes the kernel does not note (before Linux 6.11, and with cgroup v1). They
 * are the most of all samples, so those that start and end within a pause are not seen.
 */
export const uncountedPauseMillisMax = 100

/** Share of its pause by which a sample may be early, so that one wake of this process serves many idle containers. */
const earlyShareMax = 1 / 4

/** Number of containers above which each is sampled less often. A sample takes about 40 microseconds. */
const frequentlyReadMax = 4

interface Followed {
  readonly sample: () => boolean
  readonly longestMillis: number
  pauseMillis: number
  dueMillis: number
}

export interface KernelSamples {
  /** Takes samples of a container until the scope closes. `sample` returns whether a value has changed. */
  readonly follow: (
    sample: () => boolean,
    /** Longest pause (default: {@link pauseMillisMax}). */
    longestMillis?: number
  ) => Effect.Effect<void, never, Scope.Scope>
}

/**
 * Returns a `sample` that is taken only if processor time was used since the last one: without any, no value changes.
 * One number of an idle container is read instead of all.
 */
export const whileActive = (
  /** Reads the processor time so far. `undefined`: unknown. */
  processorMicros: () => number | undefined,
  sample: () => boolean
): (() => boolean) => {
  let lastMicros: number | undefined
  return () => {
    // Before the values, so that what happens meanwhile is seen next time.
    const micros = processorMicros()
    const isIdle = micros !== undefined && micros === lastMicros
    lastMicros = micros
    return isIdle ? false : sample()
  }
}

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
      if (one.dueMillis <= now + Math.max(pause / 2, one.pauseMillis * earlyShareMax)) {
        // If it throws, the others are next.
        one.dueMillis = now + pauseMillisMax
        const longest = one.sample() ? pause : Math.min(one.longestMillis, 2 * one.pauseMillis)
        one.pauseMillis = Math.max(pause, longest)
        one.dueMillis = now + one.pauseMillis
      }
      nextMillis = Math.min(nextMillis ?? Infinity, one.dueMillis - now)
    }
    return nextMillis
  }

  yield* Effect.forkScoped(
    Effect.forever(
      Effect.gen(function* () {
        const now = yield* MonotonicTime.nowMillis
        const nextMillis = yield* Effect.catchDefect(
          Effect.sync(() => round(now)),
          (defect) => Effect.as(Effect.logWarning("a container could not be sampled", defect), 0)
        )
        const woken = Queue.take(wake)
        yield* nextMillis === undefined ? woken : Effect.raceFirst(woken, Effect.sleep(nextMillis))
      })
    )
  )
  return {
    follow: (sample, longestMillis = pauseMillisMax) =>
      Effect.acquireRelease(
        Effect.gen(function* () {
          const dueMillis = (yield* MonotonicTime.nowMillis) + pauseMillisMin
          const one: Followed = { sample, longestMillis, pauseMillis: pauseMillisMin, dueMillis }
          followed.add(one)
          yield* Queue.offer(wake, undefined)
          return one
        }),
        (one) => Effect.sync(() => followed.delete(one))
      ).pipe(Effect.asVoid)
  }
})
