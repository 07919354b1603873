import { assert, describe, it } from "@effect/vitest"
import { RunId, RunStore, SandboxSpec } from "@cogni/sandbox-core"
import { RunStoreContract } from "@cogni/sandbox-core/testing"
import { Effect, Schema } from "effect"

RunStoreContract.suite("memory", RunStore.layerMemory)

describe("RunStore", () => {
  it.effect.prop(
    "a record survives its JSON form",
    [RunStore.RunRecord],
    ([record]) =>
      Effect.gen(function* () {
        const codec = Schema.toCodecJson(RunStore.RunRecord)
        const wire = JSON.stringify(yield* Schema.encodeEffect(codec)(record))
        const back = yield* Schema.decodeUnknownEffect(codec)(JSON.parse(wire))
        assert.strictEqual(JSON.stringify(yield* Schema.encodeEffect(codec)(back)), wire)
      }),
    { arbitrary: { runs: 100, seed: "run-record" } }
  )

  it.effect("an id in another's way leaves the first record alone", () =>
    Effect.gen(function* () {
      const store = yield* RunStore.RunStore
      const runId = RunId.RunId.make("run-store0000001")
      const first = yield* SandboxSpec.decode({ image: "one", argv: ["true"] })
      const second = yield* SandboxSpec.decode({ image: "two", argv: ["true"] })
      yield* store.open(runId, first)
      yield* Effect.flip(store.open(runId, second))
      assert.strictEqual((yield* store.get(runId))?.spec.image, "one")
    }).pipe(Effect.provide(RunStore.layerMemory))
  )
})
