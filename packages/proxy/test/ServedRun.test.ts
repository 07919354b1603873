/** A run as the main thread sees it, over a pool whose threads are this test. */
import { assert, describe, it } from "@effect/vitest"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Deferred, Effect, Fiber } from "effect"
import { MessageChannel, type MessagePort } from "node:worker_threads"
import * as ServedRun from "../src/internal/shards/ServedRun.ts"
import type { RunStart, RunTraffic, ToRun, ToShard } from "../src/internal/shards/ShardMessage.ts"

const traffic: RunTraffic = {
  calls: [],
  callsTotal: 3,
  refusedTotal: 0,
  toolCallsTotal: 0,
  usage: {
    calls: 0,
    inputTokens: 0,
    outputTokens: 0,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    callsWithoutUsage: 0,
    callsWithoutCost: 0
  },
  auditHead: { entries: 0, hash: "0".repeat(64) }
}

/** What a shard is sent, and its end. */
const make = Effect.gen(function* () {
  const runId = yield* RunId.generate
  const lost = yield* Deferred.make<string>()
  const ended = yield* Deferred.make<void>()
  const sent: Array<ToShard["type"]> = []
  const shard = (message: ToShard, port: MessagePort) => {
    sent.push(message.type)
    if (message.type === "recover") port.postMessage({ type: "recovered", traffic }, [])
    port.on("message", ({ type }: ToRun) => {
      if (type !== "finish" || Deferred.isDoneUnsafe(lost)) return
      port.postMessage({ type: "finished", traffic }, [])
      port.close()
    })
  }
  const run = yield* ServedRun.make({
    pool: {
      lease: Effect.sync(() => ({
        send: (message) => {
          const { port1, port2 } = new MessageChannel()
          shard(message(port2), port2)
          return port1
        },
        // Only the first: the thread that recovers lives.
        lost: sent.length === 0 ? Deferred.await(lost) : Effect.never,
        ended: Deferred.await(ended)
      }))
    },
    start: { runId, auditParent: "/nowhere" } as RunStart,
    request: LlmProxyContract.requestOf(runId),
    tools: []
  })
  return { run, lost, ended, sent }
})

describe("ServedRun", () => {
  it.live("says after its last word what that was, though its thread answers no question any more", () =>
    Effect.gen(function* () {
      const { run } = yield* make
      assert.deepStrictEqual(yield* run.finish, traffic)
      assert.deepStrictEqual(yield* run.traffic.pipe(Effect.timeout("5 seconds")), traffic)
    })
  )

  it.effect("is recovered only when nothing of its thread is left that could still write", () =>
    Effect.gen(function* () {
      const { ended, lost, run, sent } = yield* make
      yield* Deferred.succeed(lost, "planted")
      const finish = yield* Effect.forkChild(run.finish)
      yield* Effect.flip(run.failure)
      yield* Effect.replicateEffect(Effect.yieldNow, 20)
      assert.deepStrictEqual(sent, ["open"])
      yield* Deferred.succeed(ended, undefined)
      assert.deepStrictEqual(yield* Fiber.join(finish), traffic)
      assert.deepStrictEqual(sent, ["open", "recover"])
    })
  )
})
