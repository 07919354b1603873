/** Limits of one run at the mirror: its patterns, its bytes, its speed, and its requests in progress. */
import type { PackagePattern } from "@cogni/sandbox-core/PackagePattern"
import * as Semaphore from "effect/Semaphore"
import * as Allowance from "../policy/Allowance.ts"
import type { MirrorLimits } from "./MirrorConfig.ts"

export interface RunPackages {
  readonly patterns: ReadonlyArray<PackagePattern>
  /** Requests in progress. */
  readonly turns: Semaphore.Semaphore
  /** Counts fetched bytes. Returns false if the run has fetched more than it may. */
  readonly take: (bytes: number) => boolean
  /** Returns how long to wait before the next piece. */
  readonly waitMillis: (nowMillis: number) => number
  /** Returns how long to wait before the next request. */
  readonly requestWaitMillis: (nowMillis: number) => number
}

/** Requests per second that are served; more wait. Below the run's limit, which would answer them with an error. */
export const requestsPerSecondMax = 120

/** The smallest burst: a piece of a file. */
const burstBytesMin = 1024 * 1024

export const make = (
  patterns: ReadonlyArray<PackagePattern>,
  limits: Pick<MirrorLimits, "runBytesMax" | "bytesPerSecondMax" | "concurrentMax">
): RunPackages => {
  const pace = Allowance.make(limits.bytesPerSecondMax, Math.max(burstBytesMin, limits.bytesPerSecondMax / 4))
  const requests = Allowance.make(requestsPerSecondMax)
  let fetchedBytes = 0
  return {
    patterns,
    turns: Semaphore.makeUnsafe(limits.concurrentMax),
    take: (bytes) => {
      fetchedBytes += bytes
      pace.charge(performance.now(), bytes)
      return fetchedBytes <= limits.runBytesMax
    },
    waitMillis: (nowMillis) => pace.waitMillis(nowMillis),
    requestWaitMillis: (nowMillis) => {
      requests.charge(nowMillis, 1)
      return requests.waitMillis(nowMillis)
    }
  }
}
