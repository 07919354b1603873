/**
 * Waits until this machine is idle, so that no measurement includes what the one before it left to be done.
 *
 * The engine goes on after it has answered: it takes networks, mounts and control groups of an ended container apart,
 * and a pool starts the next sandbox.
 */
import { Effect } from "effect"
import { cpus } from "node:os"

/** Time over which the use of the processors is taken, in milliseconds. The system counts it in steps of 10 ms. */
const windowMillis = 100

/** Most of a machine's processor time that is used while it is idle. */
const usedShareMax = 0.1

/** After this time, the measurement is taken on the machine as it is. */
const waitSecondsMax = 2

const times = () => {
  const sums = cpus().map(({ times: { idle, ...used } }) => ({
    idle,
    all: Object.values(used).reduce((sum, millis) => sum + millis, idle)
  }))
  const total = (key: "all" | "idle") => sums.reduce((sum, one) => sum + one[key], 0)
  return { all: total("all"), idle: total("idle") }
}

/** Waits until hardly any processor time was used for a moment, for a limited time. */
export const machine: Effect.Effect<void> = Effect.gen(function* () {
  for (;;) {
    const before = times()
    yield* Effect.sleep(windowMillis)
    const now = times()
    if (now.idle - before.idle >= (1 - usedShareMax) * (now.all - before.all)) return
  }
}).pipe(Effect.timeoutOption(`${waitSecondsMax} seconds`), Effect.asVoid)
