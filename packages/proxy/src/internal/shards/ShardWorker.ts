/**
 * The program of a shard's thread.
 *
 * It beats from the moment its modules are loaded, and the main thread ends it when the beats stop. Loading keeps the
 * thread from beating for seconds on a busy machine, so it has a limit of its own (`startSecondsMax` of the pool).
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

const { program } = await import("./Shard.ts")

const beat = () => counters.add(start.slot, "beats", 1)
beat()
setInterval(beat, beatMillis)
await Effect.runPromise(program(parentPort!, counters, start.slot))
