import { assert, describe, it } from "@effect/vitest"
import type { SpendQuery, SpendRow } from "@cogni/sandbox-ledger/SpendRows"
import { LiteLlmSpendRows } from "@cogni/sandbox-proxy"
import { Effect, Redacted, Result, Stream } from "effect"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"

const key = "a".repeat(64)
const window = { from: "2026-01-31T09:00:00.000Z", to: "2026-01-31T11:00:00.000Z" }
const byKey: SpendQuery = { _tag: "RunKey", runKeyHash: key, window }
const byAccount: SpendQuery = { _tag: "Account", billingAccountId: "account-1", window }
const byCall: SpendQuery = { _tag: "Calls", calls: [{ callId: "call-1" }] }

const rowsOf = (double: LiteLlmRows.LiteLlmRows, requestSecondsMax = 30, adminKey = LiteLlmRows.adminKey) => {
  const spend = Result.getOrThrow(
    LiteLlmSpendRows.make({ url: `${double.url}/v1`, key: Redacted.make(adminKey), requestSecondsMax })
  )
  return (query: SpendQuery) => Stream.runCollect(spend.rowsOf(query))
}

const idsOf = (rows: ReadonlyArray<SpendRow>) => rows.map(({ rowId }) => rowId)

describe("LiteLlmSpendRows", () => {
  it.live("reads a row with its figures, identity and time", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.rows.push(
        LiteLlmRows.row("call-1", {
          unknown_field: { deep: true },
          metadata: {
            spend_logs_metadata: { run_id: "run-00000001", attempt: 2 },
            additional_usage_values: { cache_read_input_tokens: 40, cache_creation_input_tokens: 7 }
          }
        })
      )
      const expected: ReadonlyArray<SpendRow> = [
        {
          rowId: "call-1",
          callId: "call-1",
          runKeyHash: key,
          endUser: "account-1",
          metadata: { runId: "run-00000001", attempt: 2 },
          model: "gpt-5",
          inputTokens: 100,
          outputTokens: 10,
          cacheReadTokens: 40,
          cacheWriteTokens: 7,
          costUsd: 0.000_125,
          startedAt: "2026-01-31T10:00:01.000Z",
          zone: "stated",
          status: "success"
        }
      ]
      const rows = rowsOf(double)
      for (const query of [byCall, byKey, byAccount]) assert.deepStrictEqual(yield* rows(query), expected)
    })
  )

  it.live(
    "finds the call ID in the column, in the metadata, in JSON, or in the ID of a cached or repeated row",
    () =>
      Effect.gen(function* () {
        const double = yield* LiteLlmRows.acquire
        double.rows.push(
          LiteLlmRows.row("call-1", { request_id: "chatcmpl-1" }),
          LiteLlmRows.row("call-2", { request_id: "chatcmpl-2", litellm_call_id: null }),
          LiteLlmRows.row("call-3", {
            request_id: "chatcmpl-3",
            litellm_call_id: undefined,
            metadata: JSON.stringify({ litellm_call_id: "call-3" })
          }),
          LiteLlmRows.row("call-4", {
            request_id: "call-4_cache_hit1769853601.25",
            litellm_call_id: undefined,
            metadata: {},
            cache_hit: "True",
            spend: 0
          }),
          LiteLlmRows.row("call-5", { spend: 0 }),
          // An attempt that the provider billed before LiteLLM repeated it.
          LiteLlmRows.row("call-4-attempt-0", { status: "failure" })
        )
        const found = yield* rowsOf(double)(byKey)
        assert.deepStrictEqual(
          found.map(({ callId }) => callId),
          ["call-1", "call-2", "call-3", "call-4", "call-5", "call-4"]
        )
        assert.deepStrictEqual(
          found.flatMap(({ callId, isFree }) => (isFree === true ? [callId] : [])),
          ["call-4"],
          "answers from LiteLLM's cache"
        )
      })
  )

  it.live("asks always with a filter, and page by page beyond the number that LiteLLM counts to", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      for (let index = 0; index < 10_700; index++) double.rows.push(LiteLlmRows.row(`call-${index}`))
      double.rows.push(LiteLlmRows.row("other", { api_key: "b".repeat(64), end_user: "account-2" }))
      const found = yield* rowsOf(double)(byKey)
      assert.lengthOf(new Set(idsOf(found)), 10_700)
      assert.lengthOf(double.requests, 22)
      for (const target of double.requests) {
        const parameters = new URL(target, double.url).searchParams
        assert.strictEqual(parameters.get("api_key"), key)
        assert.strictEqual(parameters.get("start_date"), "2026-01-31 09:00:00")
        assert.strictEqual(parameters.get("end_date"), "2026-01-31 11:00:00")
      }
    })
  )

  const hostile: ReadonlyArray<readonly [title: string, changes: LiteLlmRows.Row]> = [
    ["a negative cost", { spend: -1 }],
    ["an infinite cost", { spend: "Infinity" }],
    ["a cost that is a text", { spend: "0.1" }],
    ["an absurd cost", { spend: 1e12 }],
    ["half a token", { prompt_tokens: 0.5 }],
    ["negative tokens", { completion_tokens: -1 }],
    ["a long ID of a run", { metadata: { spend_logs_metadata: { run_id: "x".repeat(100_000) } } }]
  ]
  for (const [title, changes] of hostile)
    it.live(`returns a row with ${title} as unreadable, without its figures`, () =>
      Effect.gen(function* () {
        const double = yield* LiteLlmRows.acquire
        double.rows.push(LiteLlmRows.row("call-1", changes), LiteLlmRows.row("call-2"))
        const [first, second] = yield* rowsOf(double)(byKey)
        assert.deepStrictEqual(first, {
          rowId: "call-1",
          callId: "call-1",
          runKeyHash: key,
          endUser: "account-1",
          status: "unknown",
          unreadable: true
        })
        assert.strictEqual(second?.costUsd, 0.000_125)
      })
    )

  it.live("keeps rows of hostile shapes apart, and never mistakes one for a row without an account", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.trouble = () => ({
        _tag: "Text",
        text: JSON.stringify({
          data: [
            LiteLlmRows.row("call-1", { metadata: "{not json", end_user: null }),
            LiteLlmRows.row("x".repeat(600)),
            LiteLlmRows.row("call-3", { metadata: [1, 2], startTime: "yesterday" })
          ]
        })
      })
      const found = yield* rowsOf(double)(byKey)
      assert.deepStrictEqual(
        found.map(({ endUser, rowId, startedAt, unreadable }) => [rowId, endUser, unreadable, startedAt]),
        [
          ["call-1", "", undefined, "2026-01-31T10:00:01.000Z"],
          ["unreadable-501", "account-1", true, undefined],
          ["call-3", "account-1", undefined, undefined]
        ]
      )
    })
  )

  it.live("reads an account that LiteLLM stored byte by byte", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.rows.push(LiteLlmRows.row("call-1", { end_user: Buffer.from("konto-äß").toString("latin1") }))
      assert.strictEqual((yield* rowsOf(double)(byKey))[0]?.endUser, "konto-äß")
    })
  )

  it.live("uses no row of an answer that ignores the filter", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.rows.push(
        LiteLlmRows.row("call-1"),
        LiteLlmRows.row("foreign", { api_key: "b", end_user: "account-2" })
      )
      double.trouble = () => ({ _tag: "Unfiltered" })
      const rows = rowsOf(double)
      for (const query of [byCall, byKey, byAccount])
        assert.strictEqual((yield* Effect.flip(rows(query))).problem, "filter_ignored")
    })
  )

  const troubles: ReadonlyArray<
    readonly [title: string, trouble: LiteLlmRows.Trouble, problem: string, requests: number]
  > = [
    ["a lost connection", { _tag: "Cut" }, "unreachable", 3],
    ["a database that is gone", { _tag: "Status", status: 500 }, "unavailable", 3],
    ["a restart", { _tag: "Status", status: 503 }, "unavailable", 3],
    ["a rate limit", { _tag: "Status", status: 429 }, "unavailable", 3],
    ["a refused key", { _tag: "Status", status: 401 }, "key_refused", 1],
    ["a version without these rows", { _tag: "Status", status: 404 }, "unsupported", 1],
    ["a redirect to another host", { _tag: "Redirect", to: "http://127.0.0.1:1/" }, "unsupported", 1],
    ["a page of HTML", { _tag: "Text", text: "<html>" }, "unreadable", 1],
    ["another object", { _tag: "Text", text: '{"data":"none"}' }, "unreadable", 1],
    ["an answer without an end", { _tag: "Flood" }, "too_large", 1]
  ]
  for (const [title, trouble, problem, requests] of troubles)
    it.live(`reports ${title} as ${problem}, without its text`, () =>
      Effect.gen(function* () {
        const double = yield* LiteLlmRows.acquire
        double.trouble = () => trouble
        const failure = yield* Effect.flip(rowsOf(double)(byKey))
        assert.strictEqual(failure.problem, problem)
        assert.notInclude(failure.message, LiteLlmRows.adminKey)
        assert.isNotEmpty(failure.remedy)
        assert.lengthOf(double.requests, requests)
      })
    )

  it.live("gives up on an answer that never comes", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.trouble = () => ({ _tag: "Hang" })
      assert.strictEqual((yield* Effect.flip(rowsOf(double, 0.05)(byKey))).problem, "timed_out")
    })
  )

  it.live("reads the rows after a failure that ended", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.rows.push(LiteLlmRows.row("call-1"))
      let failures = 2
      double.trouble = () => (failures-- > 0 ? { _tag: "Status", status: 503 } : undefined)
      assert.deepStrictEqual(idsOf(yield* rowsOf(double)(byKey)), ["call-1"])
    })
  )

  it.live("refuses a query without a filter before anything is sent", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      const rows = rowsOf(double)
      const empty: ReadonlyArray<unknown> = [
        { _tag: "Calls", calls: [] },
        { _tag: "Calls", calls: [{ callId: "" }] },
        { _tag: "RunKey", runKeyHash: "", window },
        { _tag: "RunKey", runKeyHash: "*", window },
        { _tag: "Account", billingAccountId: "", window },
        { _tag: "Account", billingAccountId: "a", window: { from: "", to: "" } },
        { _tag: "All", window }
      ]
      for (const query of empty)
        assert.strictEqual((yield* Effect.flip(rows(query as SpendQuery))).problem, "invalid_query")
      assert.lengthOf(double.requests, 0)
    })
  )

  it("refuses a public API, which has no such rows", () => {
    assert.isTrue(
      Result.isFailure(LiteLlmSpendRows.make({ url: "https://api.openai.com/v1", key: Redacted.make("k") }))
    )
  })

  it.live("reads nothing with a key that sees only rows of its own, and says which key to give", () =>
    Effect.gen(function* () {
      const double = yield* LiteLlmRows.acquire
      double.rows.push(LiteLlmRows.row("call-1"))
      double.isAdmin = false
      const rows = rowsOf(double)
      for (const query of [byCall, byKey, byAccount]) {
        const failure = yield* Effect.flip(rows(query))
        assert.strictEqual(failure.problem, "key_refused")
        assert.isFalse(failure.isRetryable)
        assert.include(failure.message, "it answers 403")
        assert.include(failure.message, "master key")
      }
      assert.lengthOf(double.requests, 0)
      double.isAdmin = true
      assert.deepStrictEqual(idsOf(yield* rows(byCall)), ["call-1"])
    })
  )
})
