/**
 * How fast this machine is right now, so that no test fails because other work shares its cores.
 *
 * A test may wait for progress until a hang is certain (`hangMillis`), and compares what it measured with a limit only
 * after allowing for the machine (`allowed`). A limit is written as it holds on a quiet machine.
 */
import { readFileSync } from "node:fs"
import { availableParallelism, loadavg } from "node:os"

/** Load beyond this is not allowed for: a limit that is stretched without bound tests nothing. */
const slowdownMax = 16

/** The time after which a wait is a hang, whatever else the machine does: no wait that succeeds takes this long. */
export const hangMillis = 10 * 60_000

/** Threads that run or wait for a core at this moment, from `/proc/loadavg`; 0 where there is no such file. */
const runnable = (): number => {
  try {
    return Number(/ (\d+)\/\d+ /u.exec(readFileSync("/proc/loadavg", "utf8"))?.[1] ?? 0)
  } catch {
    return 0
  }
}

/**
 * How many times longer work takes than on a quiet machine: what wants a core, for each core, over the last minute or
 * at this moment, whichever is more. Never below 1.
 */
export const slowdown = (): number =>
  Math.min(slowdownMax, Math.max(1, Math.max(loadavg()[0] ?? 0, runnable()) / availableParallelism()))

/** What something may take now, where it may take `millis` on a quiet machine. Ask when it is over, not before. */
export const allowed = (millis: number): number => millis * slowdown()
