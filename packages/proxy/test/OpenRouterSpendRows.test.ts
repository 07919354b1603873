import { assert, describe, it } from "@effect/vitest"
import type { SpendQuery } from "@cogni/sandbox-ledger/SpendRows"
import { OpenRouterSpendRows } from "@cogni/sandbox-proxy"
import { Effect, Redacted, Result, Stream } from "effect"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"

const generation = (changes: Readonly<Record<string, unknown>> = {}) => ({
  data: {
    id: "gen-1",
    total_cost: 0.0015,
    native_tokens_prompt: 10,
    native_tokens_completion: 25,
    native_tokens_cached: 4,
    created_at: "2026-01-31T10:00:01.000Z",
    model: "anthropic/claude",
    cancelled: true,
    origin: "unknown",
    ...changes
  }
})

const asked: SpendQuery = { _tag: "Calls", calls: [{ callId: "call-1", upstreamCallId: "gen-1" }] }

const rowsOf = (double: LiteLlmRows.LiteLlmRows, query: SpendQuery) =>
  Stream.runCollect(
    Result.getOrThrow(
      OpenRouterSpendRows.make({ url: `${double.url}/api/v1`, key: Redacted.make(LiteLlmRows.adminKey) })
    ).rowsOf(query)
  )

describe("OpenRouterSpendRows", () => {
  it.live("reads the cost and the native tokens of a generation", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.trouble = () => ({ _tag: "Text", text: JSON.stringify(generation()) })
      assert.deepStrictEqual(yield* rowsOf(double, asked), [
        {
          rowId: "gen-1",
          callId: "call-1",
          inputTokens: 10,
          outputTokens: 25,
          cacheReadTokens: 4,
          costUsd: 0.0015,
          model: "anthropic/claude",
          startedAt: "2026-01-31T10:00:01.000Z",
          zone: "stated",
          status: "success"
        }
      ])
      assert.deepStrictEqual(double.requests, ["/api/v1/generation?id=gen-1"])
    })
  )

  it.live("finds no row before OpenRouter has written it, which takes seconds", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.trouble = () => ({ _tag: "Status", status: 404 })
      assert.deepStrictEqual(yield* rowsOf(double, asked), [])
    })
  )

  it.live("does not call a row missing that it cannot ask for", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      const failure = yield* Effect.flip(rowsOf(double, { _tag: "Calls", calls: [{ callId: "call-1" }] }))
      assert.strictEqual(failure.problem, "unsupported")
      assert.lengthOf(double.requests, 0)
    })
  )

  for (const [title, changes] of [
    ["a negative cost", { total_cost: -1 }],
    ["another ID", { id: "gen-2" }],
    ["a text as its tokens", { native_tokens_prompt: "10" }]
  ] as const)
    it.live(`returns a row with ${title} as unreadable`, () =>
      Effect.gen(function* () {
        const double = yield* LiteLlmRows.acquire
        double.trouble = () => ({ _tag: "Text", text: JSON.stringify(generation(changes)) })
        assert.deepStrictEqual(yield* rowsOf(double, asked), [
          { rowId: "gen-1", callId: "call-1", status: "unknown", unreadable: true }
        ])
      })
    )

  it.live("lists no rows of an account or a key", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      const window = { from: "2026-01-31T09:00:00.000Z", to: "2026-01-31T11:00:00.000Z" }
      const failure = yield* Effect.flip(
        rowsOf(double, { _tag: "Account", billingAccountId: "account-1", window })
      )
      assert.strictEqual(failure.problem, "unsupported")
    })
  )
})
