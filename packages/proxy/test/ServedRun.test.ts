/** A run as the main thread sees it. This test plays the threads of its pool. */
import { Approvals } from "@cogni/sandbox-core/Approvals"
import { assert, describe, it } from "@effect/vitest"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Deferred, Effect, Fiber, Queue, Redacted, Schema } from "effect"
import { MessageChannel, type MessagePort } from "node:worker_threads"
import * as KeyDesk from "../src/internal/shards/KeyDesk.ts"
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

/** Creates a run, and records the messages to its shard. */
const make = Effect.fnUntraced(function* (
  tools: ReadonlyArray<Tool.Tool> = [],
  key: KeyDesk.KeySource = Redacted.make("key")
) {
  const runId = yield* RunId.generate
  const lost = yield* Deferred.make<string>()
  const ended = yield* Deferred.make<void>()
  const sent: Array<ToShard["type"]> = []
  const answers = yield* Queue.unbounded<Extract<ToRun, { type: "tool_answer" }>>()
  const keys = yield* Queue.unbounded<Extract<ToRun, { type: "key_told" }>>()
  const ports: Array<MessagePort> = []
  const shard = (message: ToShard, port: MessagePort) => {
    sent.push(message.type)
    if (message.type === "recover") port.postMessage({ type: "recovered", traffic }, [])
    ports.push(port)
    port.on("message", (said: ToRun) => {
      const { type } = said
      if (type === "tool_answer") Queue.offerUnsafe(answers, said)
      if (type === "key_told") Queue.offerUnsafe(keys, said)
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
        // Only the first thread is lost. The thread that recovers lives.
        lost: sent.length === 0 ? Deferred.await(lost) : Effect.never,
        ended: Deferred.await(ended)
      }))
    },
    start: { runId, auditParent: "/nowhere" } as RunStart,
    request: LlmProxyContract.requestOf(runId, { tools: tools.map(({ name }) => name) }),
    tools,
    approvals: { approvals: yield* Approvals, waitSecondsMax: 60 },
    desk: KeyDesk.make(key, { keySecondsMax: 60, keyWaitSecondsMax: 10 })
  })
  return { run, lost, ended, sent, answers, keys, ports }
})

describe("ServedRun", () => {
  it.live("returns its final traffic after its thread has finished", () =>
    Effect.gen(function* () {
      const { run } = yield* make()
      assert.deepStrictEqual(yield* run.finish, traffic)
      assert.deepStrictEqual(yield* run.traffic.pipe(Effect.timeout("5 minutes")), traffic)
    })
  )

  it.live("answers its thread if the source of its key interrupts itself", () =>
    Effect.gen(function* () {
      const { keys, ports } = yield* make([], Effect.interrupt)
      ports[0]!.postMessage({ type: "key", serial: 7, ask: { type: "key" } }, [])
      assert.deepInclude(yield* Queue.take(keys), {
        serial: 7,
        told: { _tag: "Unavailable", detail: "its source gave up", isRetryable: true }
      })
    })
  )

  it.effect("is recovered only after its lost thread has ended and can no longer write", () =>
    Effect.gen(function* () {
      const { ended, lost, run, sent } = yield* make()
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

  it.live("answers a call of a tool that interrupts itself or dies", () =>
    Effect.gen(function* () {
      const ends = { interrupted: Effect.interrupt, dies: Effect.die("planted") }
      const { answers, ports } = yield* make(
        Object.entries(ends).map(([name, execute]) =>
          Tool.make({
            name: `test__${name}`,
            description: "Never answers",
            effect: "read_only",
            input: Schema.Struct({}),
            output: Schema.String,
            runtimeSecondsMax: 5,
            execute: () => execute
          })
        )
      )
      for (const [serial, name] of Object.keys(ends).entries()) {
        const body = Buffer.from(JSON.stringify({ tool: `test__${name}`, args: {} }))
        const request = {
          requestId: "r1",
          method: "POST",
          path: "/tool/exec",
          query: "",
          headers: { "content-type": "application/json" },
          body
        }
        ports[0]!.postMessage({ type: "tool", serial, request }, [])
        const told = yield* Queue.take(answers).pipe(Effect.timeout("5 minutes"))
        assert.strictEqual(told.serial, serial)
        assert.isAtLeast(told.answer.status, 500)
      }
    })
  )
})
