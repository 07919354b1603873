/**
 * The shards of a gateway, seen from the main thread: where a run is placed, whether its thread lives, and how a thread
 * that misbehaves ends alone.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import { Deferred, Duration, Effect, type Scope } from "effect"
import { getCompileCacheDir } from "node:module"
import { MessageChannel, type MessagePort, Worker } from "node:worker_threads"
import * as ShardCounters from "./ShardCounters.ts"
import type { ShardConfig, ShardStart, ToShard } from "./ShardMessage.ts"

/** A shard that serves somebody, for as long as the scope lasts. */
export interface Lease {
  /** Send what needs an answer; it comes over the port that is returned. */
  readonly send: (make: (port: MessagePort) => ToShard) => MessagePort
  /** Settles when the thread is to end, with the reason. */
  readonly lost: Effect.Effect<string>
  /** Settles when nothing of the thread is left that could still write. */
  readonly ended: Effect.Effect<void>
}

export interface ShardPool {
  readonly lease: Effect.Effect<Lease, ProxyFailed, Scope.Scope>
}

interface Shard {
  readonly slot: number
  readonly worker: Worker
  readonly lost: Deferred.Deferred<string>
  readonly ended: Deferred.Deferred<void>
  runs: number
  /** Its heartbeat when it was last looked at, and how often it has been the same since. */
  beats: number
  silentTimes: number
}

const lookSeconds = 1

/** Extra time until a thread's first beat, in which it loads its modules: most of a second on a quiet machine. */
const startSecondsMax = 60

const MiB = 1024 * 1024

/**
 * Each thread keeps its own. Node's default of 48 MB lets a thread that does nothing hold 20 MB more, and is no faster;
 * with 8 MB a thread with 16 calls under way spends a tenth more of its time, collecting.
 */
const youngHeapMiB = 12

/** Runs from sources and from what is published alike. */
const workerUrl = new URL(`./ShardWorker${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url)

/** No thread is started until the first run asks; all end with the scope. */
export const make = Effect.fnUntraced(function* (
  config: ShardConfig
): Effect.fn.Return<ShardPool, never, Scope.Scope> {
  // A thread that is being ended keeps its place until it is gone.
  const slots = 2 * config.shardsMax
  const counters = ShardCounters.make(slots)
  const free = Array.from({ length: slots }, (_, slot) => slot)
  const living = new Set<Shard>()
  const ending = new Set<Promise<unknown>>()

  const end = (shard: Shard, reason: string) => {
    if (!living.delete(shard)) return
    Deferred.doneUnsafe(shard.lost, Effect.succeed(reason))
    const ended = shard.worker.terminate().finally(() => {
      counters.clear(shard.slot)
      free.push(shard.slot)
      ending.delete(ended)
      Deferred.doneUnsafe(shard.ended, Effect.void)
    })
    ending.add(ended)
  }

  const start = (): Shard => {
    const slot = free[0]!
    const worker = startWorker(config, {
      counters: counters.buffer,
      slot,
      compileCache: getCompileCacheDir()
    })
    free.shift()
    const shard: Shard = {
      slot,
      worker,
      lost: Deferred.makeUnsafe(),
      ended: Deferred.makeUnsafe(),
      runs: 0,
      beats: 0,
      silentTimes: -startSecondsMax / lookSeconds
    }
    living.add(shard)
    worker.on("error", (error) => end(shard, reasonOf(error, config)))
    worker.on("exit", (code) => end(shard, `it ended with code ${code}`))
    return shard
  }

  const place = (): Shard => {
    const byLoad = [...living].toSorted((one, other) => one.runs - other.runs)
    const least = byLoad[0]
    return least !== undefined && (least.runs === 0 || living.size >= config.shardsMax || free.length === 0)
      ? least
      : start()
  }

  const tellRuns = () => {
    let runs = 0
    for (const shard of living) runs += shard.runs
    for (const { worker } of living) worker.postMessage({ type: "runs", runs } satisfies ToShard, [])
  }

  // Counted in looks, not in time: a host that stood still itself ends no thread for it.
  const look = () => {
    for (const shard of living) {
      const beats = counters.read(shard.slot, "beats")
      shard.silentTimes = beats === shard.beats ? shard.silentTimes + 1 : 0
      shard.beats = beats
      if (shard.silentTimes * lookSeconds > config.shardSilentSecondsMax)
        end(shard, `it gave no sign of life for ${config.shardSilentSecondsMax} s`)
    }
  }

  yield* Effect.addFinalizer(() =>
    Effect.promise(async () => {
      for (const shard of living) end(shard, "the gateway is closed")
      await Promise.all(ending)
    })
  )
  yield* Effect.sleep(Duration.seconds(lookSeconds)).pipe(
    Effect.andThen(Effect.sync(look)),
    Effect.forever,
    Effect.forkScoped
  )

  const lease = Effect.acquireRelease(
    Effect.try({
      try: () => {
        const shard = place()
        shard.runs += 1
        tellRuns()
        return shard
      },
      catch: notStarted
    }),
    (shard) =>
      Effect.sync(() => {
        shard.runs -= 1
        // One empty shard is kept for the next run.
        if (shard.runs === 0 && [...living].some((other) => other !== shard && other.runs === 0))
          end(shard, "it serves no run")
        tellRuns()
      })
  )
  return {
    lease: Effect.map(lease, ({ ended, lost, worker }) => ({
      send: (message) => {
        const { port1, port2 } = new MessageChannel()
        worker.postMessage(message(port2), [port2])
        return port1
      },
      lost: Deferred.await(lost),
      ended: Deferred.await(ended)
    }))
  }
})

const notStarted = (thrown: unknown): ProxyFailed =>
  new ProxyFailed({
    detail: `a thread for the run cannot be started: ${messageOf(thrown)}`,
    remedy: "See that this process may start more threads (ulimit -u, pids.max) and has memory, and run again"
  })

const startWorker = (config: ShardConfig, data: ShardStart): Worker => {
  const worker = new Worker(workerUrl, {
    name: "cogni-gateway-shard",
    workerData: data,
    // It needs no variable, no argument and no output of this process, and must not write what it holds to a file.
    env: {},
    argv: [],
    execArgv: [],
    stdout: true,
    stderr: true,
    resourceLimits: {
      maxOldGenerationSizeMb: Math.ceil(config.shardHeapBytesMax / MiB),
      maxYoungGenerationSizeMb: youngHeapMiB,
      stackSizeMb: 4
    }
  })
  worker.stdout.resume()
  worker.stderr.resume()
  worker.postMessage({ type: "configure", config } satisfies ToShard, [])
  worker.unref()
  return worker
}

/** Without the error's text, which may hold what an agent has sent. */
const reasonOf = (error: unknown, { shardHeapBytesMax }: ShardConfig): string => {
  const { code, name } = error as NodeJS.ErrnoException
  return code === "ERR_WORKER_OUT_OF_MEMORY"
    ? `it needed more than ${Math.ceil(shardHeapBytesMax / MiB)} MiB of memory`
    : `it failed with ${code ?? name ?? "an error"}`
}
