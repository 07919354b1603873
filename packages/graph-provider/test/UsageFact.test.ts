/** Usage facts for the ledger, and the event that contains them. */
import { assert, describe, it } from "@effect/vitest"
import { LlmCall } from "@cogni/sandbox-core/RunFigures"
import { RunId } from "@cogni/sandbox-core/RunId"
import { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as UsageFact from "../src/events/UsageFact.ts"
import { Effect, Exit, Schema } from "effect"
import { call, traffic } from "./Traffic.ts"

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
  it.effect("rejects an unknown key, so that a fact carries no other data", () =>
    Effect.gen(function* () {
      assert.isTrue(Exit.isSuccess(yield* Effect.exit(UsageFact.decode(fact))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(UsageFact.decode({ ...fact, prompt: "secret" }))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(UsageFact.decode({ ...fact, inputTokens: -1 }))))
    })
  )

  it("has different keys for different runs, attempts and units", () => {
    assert.strictEqual(UsageFact.key(fact), "run-000000000001/0/")
    assert.strictEqual(
      UsageFact.key({ ...fact, attempt: 2, usageUnitId: "call-7" }),
      "run-000000000001/2/call-7"
    )
  })
})

describe("the facts of a run", () => {
  const owner = {
    runId: fact.runId,
    attempt: 1,
    graphId: fact.graphId,
    billingAccountId: fact.billingAccountId,
    virtualKeyId: fact.virtualKeyId
  }

  it("marks the reserved tokens of a call that ended early as estimated, also in the rest", () => {
    const usage = { inputTokens: 5, outputTokens: 100, estimated: true } as const
    const early = call({ outcome: "client_aborted", completed: false, usage })
    const facts = UsageFact.fromTraffic(owner, {
      proxy: "gateway",
      upstream: "x",
      calls: [early],
      callsTotal: 3,
      unreadableRows: 0,
      injectedHeaders: [],
      usage: {
        calls: 3,
        inputTokens: 20,
        outputTokens: 210,
        cacheReadTokens: 0,
        cacheWriteTokens: 0,
        estimatedInputTokens: 10,
        estimatedOutputTokens: 200,
        callsWithoutUsage: 2,
        callsWithoutCost: 3
      }
    })
    assert.deepInclude(facts[0], usage)
    assert.deepInclude(facts[1], { usageUnitId: "rest", inputTokens: 15, outputTokens: 110, estimated: true })
  })

  it("reports each call that reached the model, with the upstream's usage and nothing else", () => {
    const unsaid = call({ requestId: "req-2", callId: "call-2", outcome: "upstream_cut", completed: false })
    const { usage: _, ...cut } = unsaid
    const facts = UsageFact.fromTraffic(owner, traffic([call(), cut, call({ outcome: "refused" })]))
    assert.deepStrictEqual(facts.map(UsageFact.key), [
      "run-000000000001/1/call-1",
      "run-000000000001/1/call-2"
    ])
    assert.containSubset(facts[0], { inputTokens: 11, outputTokens: 5, costUsd: 0.25, source: "gateway" })
    for (const unknown of ["inputTokens", "outputTokens", "costUsd"]) assert.notProperty(facts[1], unknown)
  })

  it("has the cost at the host's prices, and names its source", () => {
    const usage = { inputTokens: 1, outputTokens: 2, costUsd: 0.5, priceSource: "prices" } as const
    const [fact] = UsageFact.fromTraffic(owner, traffic([call({ usage })]))
    assert.strictEqual(fact.costUsd, 0.5)
    assert.containSubset(fact.usageRaw, { priceSource: "prices" })
    assert.notProperty(fact, "priceSource")
  })

  it("distinguishes a run without calls from a run with unknown usage", () => {
    const [none, ...others] = UsageFact.fromTraffic(owner, traffic([]))
    assert.deepStrictEqual([none.inputTokens, none.outputTokens, others.length], [0, 0, 0])
    const [unknown] = UsageFact.fromTraffic(owner, undefined)
    assert.notProperty(unknown, "inputTokens")
    assert.notProperty(unknown, "usageUnitId")
  })

  it("adds one fact for calls that are too many to list, so that the sum is complete", () => {
    const usage = {
      calls: 3,
      inputTokens: 100,
      outputTokens: 50,
      cacheReadTokens: 7,
      cacheWriteTokens: 0,
      costUsd: 1,
      callsWithoutUsage: 0,
      callsWithoutCost: 0
    }
    const facts = UsageFact.fromTraffic(owner, traffic([call()], { callsTotal: 3, usage }))
    assert.containSubset(facts[1], {
      usageUnitId: "rest",
      inputTokens: 89,
      outputTokens: 45,
      cacheReadTokens: 7,
      costUsd: 0.75,
      usageRaw: { calls: 2 }
    })
  })

  it("reports two calls with one ID as two facts, and omits calls that the proxy answered or refused", () => {
    const facts = UsageFact.fromTraffic(
      owner,
      traffic([
        call({ requestId: "req-1" }),
        call({ requestId: "req-2" }),
        call({ requestId: "req-3", callId: "call-3", outcome: "answered" }),
        call({ requestId: "req-4", callId: "call-4", outcome: "refused" })
      ])
    )
    assert.deepStrictEqual(
      facts.map(({ usageUnitId }) => usageUnitId),
      ["call-1", "req-2"]
    )
  })

  it("reports a rest of zero, and nothing negative, if a total is less than its parts", () => {
    const usage = {
      calls: 2,
      inputTokens: 1,
      outputTokens: 1,
      cacheReadTokens: 0,
      cacheWriteTokens: 0,
      costUsd: 0.1,
      callsWithoutUsage: 0,
      callsWithoutCost: 0
    }
    const facts = UsageFact.fromTraffic(owner, traffic([call()], { callsTotal: 2, usage }))
    assert.containSubset(facts[1], { usageUnitId: "rest", inputTokens: 0, outputTokens: 0, costUsd: 0 })
  })

  it.each<[string, Parameters<typeof traffic>]>([
    [
      "an ID that is another call's request ID",
      [[call({ callId: "req-2" }), call({ callId: "", requestId: "req-2" })]]
    ],
    ["an ID that is the unit of the rest", [[call({ callId: "rest" })], { callsTotal: 2 }]]
  ])("gives %s a unique key", (_, told) => {
    const facts = UsageFact.fromTraffic(owner, traffic(...told))
    assert.strictEqual(new Set(facts.map(UsageFact.key)).size, facts.length)
  })

  it("reports unknown usage for a run whose calls could not be read", () => {
    const [fact] = UsageFact.fromTraffic(owner, traffic([], { unreadableRows: 7 }))
    assert.notProperty(fact, "inputTokens")
  })

  const Calls = Schema.Array(LlmCall)

  it.effect.prop(
    "makes every fact of any run valid, with a unique key",
    [Calls],
    ([calls]) =>
      Effect.gen(function* () {
        const told = calls.map((one, index) => ({ ...one, requestId: `req-${index}` }))
        const facts = UsageFact.fromTraffic(owner, traffic(told))
        for (const each of facts) yield* UsageFact.decode(each)
        assert.strictEqual(new Set(facts.map(UsageFact.key)).size, facts.length)
      }),
    { arbitrary: { runs: 1000, seed: "facts-1" } }
  )
})

describe("AiEvent", () => {
  it.prop(
    "survives JSON, except for the sign of a zero",
    [AiEvent],
    ([event]) => {
      const codec = Schema.toCodecJson(AiEvent)
      const wire = JSON.stringify(Schema.encodeSync(codec)(event))
      const read = Schema.decodeUnknownSync(codec)(JSON.parse(wire))
      assert.strictEqual(JSON.stringify(Schema.encodeSync(codec)(read)), wire)
    },
    { arbitrary: { runs: 1000, seed: "events-1" } }
  )
})
