import { assert, describe, it } from "@effect/vitest"
import { LlmProxy, RunId } from "@cogni/sandbox-core"
import * as RunFigures from "@cogni/sandbox-core/RunFigures"
import { LlmProxyContract } from "@cogni/sandbox-core/testing"
import { Effect } from "effect"

LlmProxyContract.suite("memory", LlmProxy.layerMemory(), {
  socketMount: Effect.succeed({
    type: "directory",
    source: "/memory/waiting",
    target: "/llm-sock",
    readOnly: true
  })
})

const request = LlmProxyContract.requestOf(RunId.RunId.make("run-proxy0000001"))

describe("LlmProxy", () => {
  it.effect("layerNoop refuses, and says what to do", () =>
    Effect.gen(function* () {
      const proxy = yield* LlmProxy.LlmProxy
      const error = yield* Effect.flip(proxy.acquire(request))
      assert.strictEqual(error._tag, "ProxyFailed")
      assert.include(error.message, "Provide a LlmProxy layer")
    }).pipe(Effect.provide(LlmProxy.layerNoop))
  )

  it.effect("reports scripted calls in memory, with their total", () =>
    Effect.gen(function* () {
      const { calls, callsTotal, usage } = yield* (yield* (yield* LlmProxy.LlmProxy).acquire(request)).finish
      assert.strictEqual(callsTotal, 2)
      assert.containSubset(calls, [
        { model: request.llm.model, status: 200, durationMs: 0, usage: { inputTokens: 7, outputTokens: 3 } },
        { model: "other", status: 429, durationMs: 1500, usage: { inputTokens: 0, costUsd: 0.5 } }
      ])
      assert.isTrue(calls.every(RunFigures.hasReachedUpstream))
      assert.lengthOf(new Set(calls.map(({ callId }) => callId)), 2)
      assert.deepStrictEqual(usage, {
        calls: 2,
        inputTokens: 7,
        outputTokens: 3,
        cacheReadTokens: 0,
        cacheWriteTokens: 0,
        costUsd: 0.5,
        callsWithoutUsage: 0,
        callsWithoutCost: 1
      })
    }).pipe(
      Effect.scoped,
      Effect.provide(
        LlmProxy.layerMemory({
          calls: [
            { inputTokens: 7, outputTokens: 3 },
            { model: "other", status: 429, seconds: 1.5, costUsd: 0.5 }
          ]
        })
      )
    )
  )

  it.effect("closes the socket in memory with its scope", () =>
    Effect.gen(function* () {
      const proxy = yield* LlmProxy.LlmProxy
      const endpoint = yield* Effect.scoped(Effect.tap(proxy.acquire(request), ({ ready }) => ready))
      assert.strictEqual((yield* Effect.flip(endpoint.ready))._tag, "ProxyFailed")
      assert.strictEqual((yield* Effect.flip(endpoint.traffic))._tag, "ProxyFailed")
    }).pipe(Effect.provide(LlmProxy.layerMemory()))
  )
})
