/**
 * What the ledger takes, and the event that carries it.
 */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { AiEvent } from "@cogni/sandbox-graph-provider/AiEvent"
import * as UsageFact from "@cogni/sandbox-graph-provider/UsageFact"
import { Effect, Exit, Schema } from "effect"

const fact = {
  runId: RunId.make("run-000000000001"),
  attempt: 0,
  source: "litellm",
  executorType: "sandbox",
  billingAccountId: "acct-1",
  virtualKeyId: "vk-1",
  graphId: "sandbox:agent"
}

describe("UsageFact", () => {
  it.effect("an unknown key is refused, so that nothing rides along", () =>
    Effect.gen(function* () {
      assert.isTrue(Exit.isSuccess(yield* Effect.exit(UsageFact.decode(fact))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(UsageFact.decode({ ...fact, prompt: "secret" }))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(UsageFact.decode({ ...fact, inputTokens: -1 }))))
    })
  )

  it("its key tells apart runs, attempts and units", () => {
    assert.strictEqual(UsageFact.key(fact), "run-000000000001/0/")
    assert.strictEqual(
      UsageFact.key({ ...fact, attempt: 2, usageUnitId: "call-7" }),
      "run-000000000001/2/call-7"
    )
  })
})

describe("AiEvent", () => {
  it.prop("survives JSON", [AiEvent], ([event]) => {
    const codec = Schema.toCodecJson(AiEvent)
    const wire = JSON.parse(JSON.stringify(Schema.encodeSync(codec)(event)))
    assert.deepStrictEqual(
      Schema.decodeUnknownSync(codec)(wire),
      Schema.decodeUnknownSync(codec)(Schema.encodeSync(codec)(event))
    )
  })
})
