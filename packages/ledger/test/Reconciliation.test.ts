import { assert, describe, it } from "@effect/vitest"
import { LedgerEntry, ReconciliationLimits, type SpendRows } from "@cogni/sandbox-ledger"
import type * as EntryFields from "@cogni/sandbox-ledger/EntryFields"
import { Schema } from "effect"
import * as Reconciliation from "../src/Reconciliation.ts"
import { entryOf } from "../src/testing/LedgerSamples.ts"

const rules = ReconciliationLimits.limitsFor()
const key = "a".repeat(64)
const run = "run-00000001"
const entry = (changes: Partial<LedgerEntry.LedgerEntry> = {}) =>
  entryOf(run, "call-1", { runKeyHash: key, ...changes })
const row = (changes: Partial<SpendRows.SpendRow> = {}): SpendRows.SpendRow => ({
  rowId: "call-1",
  callId: "call-1",
  runKeyHash: key,
  endUser: "account-1",
  metadata: { runId: run, attempt: 0 },
  inputTokens: 100,
  outputTokens: 10,
  costUsd: 0.000_125,
  startedAt: "2026-01-31T10:00:01.000Z",
  zone: "stated",
  status: "success",
  ...changes
})
const zero = { inputTokens: 0, outputTokens: 0, costUsd: 0 } as const
const recordedMs = Date.parse(entry().recordedAt)
const lateMs = recordedMs + rules.deadlineSeconds * 1000

const judge = (
  of: LedgerEntry.LedgerEntry,
  rows: ReadonlyArray<SpendRows.SpendRow>,
  nowMs = recordedMs + 60_000
) => {
  const verdict = Reconciliation.judge(of, rows, nowMs, rules)
  return verdict && [verdict.state, verdict.reason]
}

const { costUsd: _cost, ...uncosted } = entry()
const streamed: LedgerEntry.LedgerEntry = { ...uncosted, priceSource: "none" }
const reserved = entry({
  priceSource: "reservation",
  state: "estimated",
  costUsd: 1,
  outcome: "client_aborted"
})
const { costUsd: _rowCost, ...uncostedRow } = row()

describe("Reconciliation", () => {
  const cases: ReadonlyArray<
    readonly [
      title: string,
      of: LedgerEntry.LedgerEntry,
      rows: ReadonlyArray<SpendRows.SpendRow>,
      expected: readonly [EntryFields.State, Reconciliation.ReconciliationReason | undefined] | undefined
    ]
  > = [
    ["a row that agrees is matched", entry(), [row()], ["matched", undefined]],
    ["a row that comes twice is one row", entry(), [row(), row()], ["matched", undefined]],
    [
      "a cost that differs by rounding is matched",
      entry(),
      [row({ costUsd: 0.000_125_000_000_1 })],
      ["matched", undefined]
    ],
    ["another cost drifts", entry(), [row({ costUsd: 0.000_126 })], ["drifted", "cost_differs"]],
    ["other output tokens drift", entry(), [row({ outputTokens: 11 })], ["drifted", "tokens_differ"]],
    ["other input tokens drift", entry(), [row({ inputTokens: 99 })], ["drifted", "tokens_differ"]],
    [
      "other cached tokens drift",
      entry({ cacheReadTokens: 5 }),
      [row({ cacheReadTokens: 6 })],
      ["drifted", "tokens_differ"]
    ],
    ["another account drifts", entry(), [row({ endUser: "account-2" })], ["drifted", "identity_differs"]],
    ["a row without an account drifts", entry(), [row({ endUser: "" })], ["drifted", "identity_differs"]],
    [
      "another run drifts",
      entry(),
      [row({ metadata: { runId: "run-00000002" } })],
      ["drifted", "identity_differs"]
    ],
    ["another attempt drifts", entry(), [row({ metadata: { attempt: 1 } })], ["drifted", "identity_differs"]],
    ["another key drifts", entry(), [row({ runKeyHash: "b".repeat(64) })], ["drifted", "key_differs"]],
    [
      "a run without a key of its own is not compared by the key of its caller",
      entryOf(run, "call-1", { virtualKeyId: "grant-1" }),
      [row({ runKeyHash: "b".repeat(64) })],
      ["matched", undefined]
    ],
    ["two rows drift", entry(), [row(), row({ rowId: "call-1-again" })], ["drifted", "duplicate_rows"]],
    [
      "two equal rows drift also for a call without figures",
      reserved,
      [row(), row({ rowId: "call-1-again" })],
      ["drifted", "duplicate_rows"]
    ],
    [
      "failed attempts that the upstream repeated are not counted",
      entry(),
      [row({ rowId: "try-1", status: "failure", ...zero }), row({ rowId: "try-2" })],
      ["matched", undefined]
    ],
    ["an unreadable row drifts", entry(), [row({ unreadable: true })], ["drifted", "row_unreadable"]],
    ["a row without figures drifts from known ones", entry(), [row(zero)], ["drifted", "zero_row"]],
    [
      "a failed call with a zero row is matched",
      { ...streamed, outcome: "completed" },
      [row({ status: "failure", ...zero })],
      ["matched", "failed_call"]
    ],
    [
      "a zero row is no proof that an aborted call was free",
      reserved,
      [row({ status: "failure", ...zero })],
      ["drifted", "zero_row"]
    ],
    ["a successful zero row is no proof either", streamed, [row(zero)], ["drifted", "zero_row"]],
    ["a streamed call gets its cost", streamed, [row()], ["matched", "figures_from_row"]],
    [
      "a reserved call gets its figures",
      reserved,
      [row({ inputTokens: 7 })],
      ["matched", "figures_from_row"]
    ],
    ["no cost anywhere drifts", streamed, [uncostedRow], ["drifted", "row_without_cost"]],
    ["a row without a cost confirms none", entry(), [uncostedRow], ["drifted", "row_without_cost"]],
    [
      "tokens for which LiteLLM has no price are no free call, whatever was reserved for it",
      { ...reserved, reservedUsd: 1 },
      [row({ costUsd: 0 })],
      ["drifted", "row_without_cost"]
    ],
    [
      "a cost of 0 for tokens is no cost of a call without one",
      streamed,
      [row({ costUsd: 0 })],
      ["drifted", "row_without_cost"]
    ],
    [
      "a cost of 0 for tokens does not correct a cost of the host",
      entry({ priceSource: "prices" }),
      [row({ costUsd: 0 })],
      ["drifted", "row_without_cost"]
    ],
    [
      "a model whose price at the host is 0 costs nothing",
      { ...reserved, costUsd: 0, reservedUsd: 0 },
      [row({ costUsd: 0 })],
      ["matched", "figures_from_row"]
    ],
    [
      "a row of a call that the upstream answered for nothing costs nothing",
      reserved,
      [row({ costUsd: 0, isFree: true })],
      ["matched", "figures_from_row"]
    ],
    [
      "an answer that cost the upstream nothing differs from the price of the host",
      entry({ priceSource: "prices" }),
      [row({ costUsd: 0, isFree: true })],
      ["drifted", "cost_differs"]
    ],
    [
      "a call that cost nothing in the answer and in the row is matched",
      entry({ costUsd: 0 }),
      [row({ costUsd: 0 })],
      ["matched", undefined]
    ],
    ["a row may still come", entry(), [], undefined]
  ]
  for (const [title, of, rows, expected] of cases)
    it(`${title}`, () => assert.deepStrictEqual(judge(of, rows), expected && [...expected]))

  it("a model that the host calls free costs nothing, unless the host has a price for it", () => {
    const ofModel = (of: LedgerEntry.LedgerEntry, isFree: (model: string) => boolean) =>
      Reconciliation.judge(of, [row({ costUsd: 0 })], recordedMs, { ...rules, isFree })?.state
    const isFree = (model: string) => model === "gpt-5"
    assert.strictEqual(ofModel(streamed, isFree), "matched")
    assert.strictEqual(ofModel({ ...streamed, model: "gpt-5-pro" }, isFree), "drifted")
    assert.strictEqual(ofModel({ ...reserved, reservedUsd: 1 }, isFree), "drifted")
  })

  it("a call whose row had no price gets its figures once there is a price, and no other finding before", () => {
    const unpriced: LedgerEntry.LedgerEntry = {
      ...uncosted,
      outputTokens: 4000,
      priceSource: "none",
      state: "estimated",
      reason: "usage_missing"
    }
    const corrected = (of: LedgerEntry.LedgerEntry, found: SpendRows.SpendRow) =>
      Reconciliation.correction(
        of,
        Reconciliation.judge(of, [found], recordedMs, rules)!,
        "2026-01-31T11:00:00.000Z"
      )
    for (const of of [unpriced, streamed]) {
      const drifted = corrected(of, row({ costUsd: 0 }))!
      assert.deepInclude(drifted, { state: "drifted", reason: "row_without_cost", priceSource: "none" })
      assert.notProperty(drifted, "costUsd")
      assert.isUndefined(corrected(drifted, row({ costUsd: 0 })))
      const priced = corrected(drifted, row())
      assert.deepInclude(priced, { state: "matched", reason: "figures_from_row", costUsd: 0.000_125 })
      assert.deepInclude(priced, { outputTokens: 10 })
    }
  })

  it("a call without a row is missing at the deadline, and not before", () => {
    assert.isUndefined(judge(entry(), [], lateMs - 1))
    assert.deepStrictEqual(judge(entry(), [], lateMs), ["missing", "no_row"])
  })

  it("the deadline is at least three batches of the upstream", () => {
    for (const batchSeconds of [1, 10, 60, 600]) {
      const limits = ReconciliationLimits.limitsFor(batchSeconds)
      assert.isAtLeast(limits.deadlineSeconds, 3 * batchSeconds)
      assert.isAbove(limits.rowsDelaySeconds, batchSeconds)
    }
  })

  it("a call that did not reach the upstream needs no row, and costs nothing", () => {
    const unreached = { ...streamed, outcome: "upstream_unreachable" as const }
    const verdict = Reconciliation.judge(unreached, [], lateMs, rules)!
    const next = Reconciliation.correction(unreached, verdict, "2026-01-31T11:00:00.000Z")!
    assert.deepInclude(next, { state: "matched", reason: "no_row_expected", costUsd: 0, priceSource: "row" })
  })

  it("a correction is the next revision, valid, and says what it replaced", () => {
    const verdict = Reconciliation.judge(reserved, [row()], recordedMs, rules)!
    const next = Reconciliation.correction(reserved, verdict, "2026-01-31T11:00:00.000Z")!
    assert.deepInclude(next, {
      revision: 1,
      recordedAt: "2026-01-31T11:00:00.000Z",
      state: "matched",
      reason: "figures_from_row",
      costUsd: 0.000_125,
      priceSource: "row",
      inputTokens: 100
    })
    assert.strictEqual(next.detail, "1 USD was reserved, the row costs 0.000125 USD")
    assert.isTrue(Schema.is(LedgerEntry.LedgerEntry)(next))
  })

  it("figures of the ledger stay when a row differs", () => {
    const verdict = Reconciliation.judge(entry(), [row({ costUsd: 5 })], recordedMs, rules)!
    const next = Reconciliation.correction(entry(), verdict, entry().recordedAt)!
    assert.deepInclude(next, { costUsd: 0.000_125, priceSource: "upstream", state: "drifted" })
  })

  it("the same verdict again is no further entry", () => {
    const verdict = Reconciliation.judge(entry(), [row({ costUsd: 5 })], recordedMs, rules)!
    const next = Reconciliation.correction(entry(), verdict, entry().recordedAt)!
    assert.isUndefined(Reconciliation.correction(next, verdict, entry().recordedAt))
  })

  it("no detail contains text of a row", () => {
    const hostile = "\u001b[2J<script>"
    const rows = [
      row({ endUser: hostile }),
      row({ metadata: { runId: hostile } }),
      row({ runKeyHash: hostile }),
      row({ model: hostile, costUsd: 9 })
    ]
    for (const one of rows) {
      const verdict = Reconciliation.judge(entry(), [one], recordedMs, rules)!
      assert.strictEqual(verdict.state, "drifted")
      assert.notInclude(JSON.stringify(verdict), "script")
    }
  })
})

describe("Reconciliation times", () => {
  const cases: ReadonlyArray<readonly [text: string, expected: string | undefined, zone?: string]> = [
    ["2026-01-31T10:00:01.000Z", "2026-01-31T10:00:01.000Z", "stated"],
    ["2026-01-31T10:00:01.123456+00:00", "2026-01-31T10:00:01.123Z", "stated"],
    ["2026-01-31 12:00:01+02:00", "2026-01-31T10:00:01.000Z", "stated"],
    ["2026-01-31T05:30:01-0430", "2026-01-31T10:00:01.000Z", "stated"],
    ["2026-01-31 10:00:01", "2026-01-31T10:00:01.000Z", "assumed_utc"],
    ["2026-01-31T10:00:01.5", "2026-01-31T10:00:01.500Z", "assumed_utc"],
    ["2026-01-31 10:00:01 UTC", "2026-01-31T10:00:01.000Z", "stated"],
    ["2026-13-31T10:00:01Z", undefined],
    ["yesterday", undefined],
    ["", undefined],
    ["9999999999", undefined]
  ]
  for (const [text, startedAt, zone] of cases)
    it(`reads ${JSON.stringify(text)} as ${startedAt ?? "no time"}`, () =>
      assert.deepStrictEqual(
        Reconciliation.instantOf(text) as unknown,
        startedAt === undefined ? undefined : { startedAt, zone }
      ))
})
