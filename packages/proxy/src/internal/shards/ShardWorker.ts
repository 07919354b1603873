/**
 * Entry point of a shard's thread. Its heartbeat starts when its program is loaded, and the main thread ends a thread
 * whose heartbeat stops.
 *
 * Loading blocks the thread for seconds on a busy machine, so it has a separate limit: `startSecondsMax` of the pool.
 */
import * as Effect from "effect/Effect"
import { enableCompileCache } from "node:module"
import { parentPort, workerData } from "node:worker_threads"
import * as ShardCounters from "./ShardCounters.ts"
import type { ShardStart } from "./ShardMessage.ts"

const beatMillis = 500

const start = workerData as ShardStart
if (start.compileCache !== undefined) enableCompileCache(start.compileCache)
const counters = ShardCounters.over(start.counters)

const run = async () => {
  const { program } = await import("./Shard.ts")
  const beat = () => counters.add(start.slot, "beats", 1)
  beat()
  setInterval(beat, beatMillis)
  await Effect.runPromise(program(parentPort!, counters, start))
}

// As a text, this module has no top-level await. A rejection ends the thread, and the main thread gets the error.
void run()
