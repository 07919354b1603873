import { assert, describe, it } from "@effect/vitest"
import { Ledger, Reconciler } from "@cogni/sandbox-ledger"
import * as LedgerEntries from "@cogni/sandbox-ledger/LedgerEntries"
import type { SpendQuery } from "@cogni/sandbox-ledger/SpendRows"
import { runOf } from "../../ledger/src/testing/LedgerSamples.ts"
import { AuditCalls, OpenRouterSpendRows } from "@cogni/sandbox-proxy"
import { Effect, Layer, Redacted, Result, Stream } from "effect"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"
import * as OpenRouterGenerations from "../../../test/harness/OpenRouterGenerations.ts"
import * as Gateway from "./GatewaySocket.ts"

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

  it.live("calls a generation free if it costs 0, except with a key of its provider", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      const isFree = Effect.fnUntraced(function* (changes: Readonly<Record<string, unknown>>) {
        double.trouble = () => ({ _tag: "Text", text: JSON.stringify(generation(changes)) })
        return (yield* rowsOf(double, asked)).map((row) => [row.costUsd, row.isFree])
      })
      assert.deepStrictEqual(yield* isFree({ total_cost: 0, is_byok: false }), [[0, true]])
      assert.deepStrictEqual(yield* isFree({ total_cost: 0, is_byok: true }), [[0, undefined]])
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

  it.live("finds the row of a call by the ID that the gateway recorded, and only of such a call", () =>
    Effect.gen(function* () {
      const openRouter = yield* OpenRouterGenerations.acquire
      const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110, cost: 0.000_125 }
      const chunk = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`
      const gateway = yield* Gateway.make({
        profile: "openrouter",
        script: [
          { _tag: "Answer", body: JSON.stringify({ id: "gen-whole", choices: [], usage }) },
          {
            _tag: "Answer",
            headers: { "content-type": "text/event-stream" },
            body: `: OPENROUTER PROCESSING\n\n${chunk({ id: "gen-streamed", choices: [] })}${chunk({ id: "gen-streamed", choices: [], usage })}data: [DONE]\n\n`
          },
          { _tag: "Refuse" }
        ]
      })
      yield* gateway.send(Gateway.http(Gateway.chat()))
      yield* gateway.send(Gateway.http(Gateway.chat({ stream: true })))
      yield* gateway.send(Gateway.http(Gateway.chat()))
      const { calls } = yield* gateway.endpoint.finish
      const recorded = ["gen-whole", "gen-streamed", undefined]
      assert.deepStrictEqual(
        calls.map(({ upstreamCallId }) => upstreamCallId),
        recorded
      )
      openRouter.generations.push(
        OpenRouterGenerations.generation("gen-whole"),
        OpenRouterGenerations.generation("gen-streamed", { total_cost: 7 })
      )

      const { directory, runId } = gateway
      const audited = yield* AuditCalls.reader()({ directory, runId })
      const entries = LedgerEntries.ofAudit(
        runOf(runId, { upstream: "openrouter" }),
        audited!,
        "2026-01-31T10:05:00.000Z"
      )
      assert.deepStrictEqual(
        entries.map(({ upstreamCallId }) => upstreamCallId),
        recorded
      )
      const ledger = yield* Ledger.makeMemory()
      yield* ledger.append(entries)
      const report = yield* Reconciler.Reconciler.use(({ reconcile }) => reconcile()).pipe(
        Effect.provide(
          Reconciler.layer().pipe(
            Layer.provide(Layer.succeed(Ledger.Ledger, ledger)),
            Layer.provide(
              OpenRouterSpendRows.layer({
                url: openRouter.url,
                key: Redacted.make(OpenRouterGenerations.apiKey)
              })
            )
          )
        )
      )
      assert.deepInclude(report, { unread: 0, unresolved: 1, failure: undefined })
      assert.deepStrictEqual(
        (yield* ledger.list({})).entries.map(({ reason, state }) => [state, reason]),
        [
          ["matched", undefined],
          ["drifted", "cost_differs"],
          ["estimated", "usage_missing"]
        ]
      )
      assert.deepStrictEqual(openRouter.requests.toSorted(), [
        "/api/v1/generation?id=gen-streamed",
        "/api/v1/generation?id=gen-whole"
      ])
    })
  )
})
