/**
 * Estimates how slow this machine is right now, so that no test fails because other work shares its cores.
 *
 * A test may wait for progress until a hang is certain (`hangMillis`). It compares a measured time with a limit only
 * after it has adjusted the limit to the machine (`allowed`). Limits are those of a quiet machine.
 */
import { readFileSync } from "node:fs"
import { availableParallelism, loadavg } from "node:os"

/** Largest slowdown that extends a limit: a limit without a bound would test nothing. */
const slowdownMax = 16

/** The time after which a wait counts as a hang. No successful wait takes this long, even on a busy machine. */
export const hangMillis = 10 * 60_000

/**
 * Time limit of a run whose limit is not what a test is about: less than that of the test, so that the failure names
 * the run. A real agent starts in 10 seconds on a quiet machine, and took more than 90 on a busy one.
 */
export const runSecondsMax = 300

/** Time limit of a request to a real LiteLLM, which shares its processor with the other tests. */
export const requestSecondsMax = 120

/** Counts the threads that run or wait for a core at this moment, from `/proc/loadavg`; 0 without that file. */
const runnable = (): number => {
  try {
    return Number(/ (\d+)\/\d+ /u.exec(readFileSync("/proc/loadavg", "utf8"))?.[1] ?? 0)
  } catch {
    return 0
  }
}

/**
 * Returns how many times longer work takes than on a quiet machine: the runnable threads per core, over the last minute
 * or at this moment, whichever is more. Never below 1.
 */
export const slowdown = (): number =>
  Math.min(slowdownMax, Math.max(1, Math.max(loadavg()[0] ?? 0, runnable()) / availableParallelism()))

/** Adjusts a limit of a quiet machine to this one. Call it after the measured work, not before. */
export const allowed = (millis: number): number => millis * slowdown()
