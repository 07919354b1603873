/**
 * The shards of a gateway, seen from the main thread: assigns runs to threads, checks that the threads live, and ends a
 * thread that misbehaves without ending the others.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import { Deferred, Duration, Effect, type Scope } from "effect"
import { getCompileCacheDir } from "node:module"
import { MessageChannel, type MessagePort, type Worker } from "node:worker_threads"
import * as ThreadCode from "../ThreadCode.ts"
import * as ShardCounters from "./ShardCounters.ts"
import type { ShardConfig, ShardStart, ToShard } from "./ShardMessage.ts"

/** A shard that a run uses until the scope is closed. */
export interface Lease {
  /** Sends a message. The returned port receives the answers. */
  readonly send: (make: (port: MessagePort) => ToShard) => MessagePort
  /** Settles with the reason when the thread fails or must end. */
  readonly lost: Effect.Effect<string>
  /** Settles when the thread has ended and can no longer write. */
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
  /** Heartbeat at the last check, and the number of checks since it changed. */
  beats: number
  silentTimes: number
}

const lookSeconds = 1

/** Extra time until a thread's first heartbeat. It loads its modules first, which takes about a second when idle. */
const startSecondsMax = 60

const MiB = 1024 * 1024

/**
 * Young generation of each thread. Node's default of 48 MB makes an idle thread hold 20 MB more, and is no faster. With
 * 8 MB, a thread with 16 calls in progress spends a tenth more time, on garbage collection.
 */
const youngHeapMiB = 12

/** Reason of a thread that was bundled without its program. */
export const programMissing = "its program does not exist"

/** Starts no thread before the first run. Closing the scope ends all threads. */
export const make = Effect.fnUntraced(function* (
  config: ShardConfig
): Effect.fn.Return<ShardPool, never, Scope.Scope> {
  const code = yield* Effect.promise(ThreadCode.load)
  // A thread that is being ended keeps its slot until it is gone.
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
    const worker = startWorker(config, code.shard, {
      counters: counters.buffer,
      slot,
      inspection: code.inspection,
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

  // Counts checks instead of time, so that a host that was itself suspended does not end its threads.
  const look = () => {
    for (const shard of living) {
      const beats = counters.read(shard.slot, "beats")
      shard.silentTimes = beats === shard.beats ? shard.silentTimes + 1 : 0
      shard.beats = beats
      if (shard.silentTimes * lookSeconds > config.shardSilentSecondsMax)
        end(shard, `it sent no heartbeat for ${config.shardSilentSecondsMax} s`)
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
        // One idle shard is kept for the next run.
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
    remedy: "Allow this process more threads (ulimit -u, pids.max), check its free memory, and run again"
  })

const startWorker = (config: ShardConfig, code: ThreadCode.ThreadCode, data: ShardStart): Worker => {
  const worker = ThreadCode.start(code, {
    name: "cogni-gateway-shard",
    workerData: data,
    // A shard needs no variable, argument or output of this process, and must not write its memory to a file.
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
  worker.unref()
  try {
    worker.postMessage({ type: "configure", config } satisfies ToShard, [])
  } catch (thrown) {
    void worker.terminate()
    throw thrown
  }
  return worker
}

/** Omits the error's text, which may contain an agent's data. */
const reasonOf = (error: unknown, { shardHeapBytesMax }: ShardConfig): string => {
  const { code, name } = error as NodeJS.ErrnoException
  if (ThreadCode.isMissing(error)) return programMissing
  return code === "ERR_WORKER_OUT_OF_MEMORY"
    ? `it needed more than ${Math.ceil(shardHeapBytesMax / MiB)} MiB of memory`
    : `it failed with ${code ?? name ?? "an error"}`
}
