/**
 * Counts the model calls of one account in the current minute, in memory that all threads of a process share.
 *
 * A minute is one of the clock, as days and months are. One 64-bit number holds the minute and its calls, and another
 * the limit, so that a call is counted with one atomic exchange: a thread that dies holds no lock.
 */

/** Maximum number of calls per minute that can be counted. */
export const callsPerMinuteMax = 1_000_000

export interface CallPace {
  readonly buffer: SharedArrayBuffer
  /** Calls per minute that are allowed now. */
  readonly limit: () => number
  /** Changes the limit, for the calls after it. At least 1. */
  readonly allow: (callsPerMinute: number) => void
  /** Counts a call. Returns the milliseconds until the next minute if this one has no more calls, otherwise 0. */
  readonly take: (nowMillis: number) => number
}

const minuteMillis = 60_000

/** Minutes that a clock may go back without being set. */
const aheadMinutesMax = 2n

/** Bits of the number of calls. The rest is the minute since 1970. */
const countBits = 24n
const countMask = (1n << countBits) - 1n

export const make = (callsPerMinute: number): CallPace => {
  const pace = over(new SharedArrayBuffer(2 * BigInt64Array.BYTES_PER_ELEMENT))
  pace.allow(callsPerMinute)
  return pace
}

/** Opens the same count, for example in another thread. */
export const over = (buffer: SharedArrayBuffer): CallPace => {
  const cells = new BigInt64Array(buffer)
  const limit = () => Number(Atomics.load(cells, 1))
  return {
    buffer,
    limit,
    allow: (callsPerMinute) => {
      const whole = Math.min(callsPerMinuteMax, Math.max(1, Math.floor(callsPerMinute)))
      Atomics.store(cells, 1, BigInt(whole))
    },
    take: (nowMillis) => {
      const minute = BigInt(Math.floor(nowMillis / minuteMillis))
      for (;;) {
        const before = Atomics.load(cells, 0)
        // A clock that went back a little stays in the later minute, so that no minute is counted twice. One that was
        // far ahead would count all calls in one minute until that time.
        const ahead = (before >> countBits) - minute
        const isLater = ahead < 0n || ahead > aheadMinutesMax
        const current = isLater ? minute : before >> countBits
        const count = isLater ? 0n : before & countMask
        if (count >= Atomics.load(cells, 1))
          return Math.min(minuteMillis, Math.max(1, Number(current + 1n) * minuteMillis - nowMillis))
        if (Atomics.compareExchange(cells, 0, before, (current << countBits) | (count + 1n)) === before)
          return 0
      }
    }
  }
}
