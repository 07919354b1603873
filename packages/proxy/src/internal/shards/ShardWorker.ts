/**
 * A shard: a thread that serves the sockets of one run, or of a few where there are more runs than threads.
 *
 * Everything that touches bytes of an agent happens here. The main thread sees a heartbeat, and ends the thread when it
 * stops.
 */
import { enableCompileCache } from "node:module"
import { parentPort, workerData } from "node:worker_threads"
import * as ProcessorMeter from "../gateway/ProcessorMeter.ts"
import * as ShardCounters from "./ShardCounters.ts"
import type { ShardConfig, ShardStart, ToShard } from "./ShardMessage.ts"
import * as ShardRun from "./ShardRun.ts"

const beatMillis = 500

const { compileCache, counters: buffer, slot } = workerData as ShardStart
if (compileCache !== undefined) enableCompileCache(compileCache)
const counters = ShardCounters.over(buffer)
const meter = ProcessorMeter.make()
let config: ShardConfig | undefined
let runs = 1
let own = 0

const beat = () => counters.add(slot, "beats", 1)
beat()
setInterval(beat, beatMillis)

parentPort?.on("message", (message: ToShard) => {
  switch (message.type) {
    case "configure":
      config = message.config
      return
    case "runs":
      runs = message.runs
      return
    case "recover":
      return void import("../audit/AuditRecovery.ts")
        .then(({ recover }) => recover(config!, message.run, meter))
        .then((told) => {
          message.port.postMessage(told, [])
          return message.port.close()
        })
    case "open":
      own += 1
      return void ShardRun.serve(
        { config: config!, counters, slot, meter, runs: () => runs, isAlone: () => own === 1 },
        message.run,
        message.port
      ).finally(() => {
        own -= 1
      })
  }
})
