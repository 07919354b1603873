import { assert, describe, it } from "@effect/vitest"
import { LlmProxy, RunId } from "@cogni/sandbox-core"
import { LlmProxyContract } from "@cogni/sandbox-core/testing"
import { Effect } from "effect"

LlmProxyContract.suite("memory", LlmProxy.layerMemory())

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

  it.effect("closes the socket in memory with its scope", () =>
    Effect.gen(function* () {
      const proxy = yield* LlmProxy.LlmProxy
      const endpoint = yield* Effect.scoped(Effect.tap(proxy.acquire(request), ({ ready }) => ready))
      assert.strictEqual((yield* Effect.flip(endpoint.ready))._tag, "ProxyFailed")
      assert.strictEqual((yield* Effect.flip(endpoint.traffic))._tag, "ProxyFailed")
    }).pipe(Effect.provide(LlmProxy.layerMemory()))
  )
})
