/**
 * The thread of a shard. It shows that it lives before it loads what it does, which takes longer.
 *
 * The main thread sees a heartbeat, and ends the thread when it stops.
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

const beat = () => counters.add(start.slot, "beats", 1)
beat()
setInterval(beat, beatMillis)

const { program } = await import("./Shard.ts")
await Effect.runPromise(program(parentPort!, counters, start.slot))
