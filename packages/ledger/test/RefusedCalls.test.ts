/** A row with an ID of the upstream's own is given to one call at most, and changes no charge. */
import { assert, describe, it } from "@effect/vitest"
import type { LedgerEntry, SpendRows } from "@cogni/sandbox-ledger"
import { Schema } from "effect"
import * as RefusedCalls from "../src/internal/RefusedCalls.ts"
import { entryOf } from "../src/testing/LedgerContract.ts"

const skewSeconds = 300

const instant = (second: number) =>
  new Date(Date.parse("2026-01-31T10:00:00.000Z") + second * 1000).toISOString()

const Second = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2000 }))

const kinds = {
  answered: { state: "matched" },
  failed: { state: "matched", reason: "failed_call", costUsd: 0, priceSource: "row" },
  missing: { state: "missing", reason: "no_row", costUsd: 0.005, priceSource: "reservation" },
  pending: { costUsd: 0, priceSource: "free" },
  refused: { state: "matched", reason: "no_row_expected", costUsd: 0, priceSource: "free" },
  reserved: { state: "estimated", costUsd: 0.005, priceSource: "reservation" }
} as const satisfies Readonly<Record<string, Partial<LedgerEntry.LedgerEntry>>>

const Calls = Schema.Array(
  Schema.Struct({
    second: Second,
    kind: Schema.Literals(["missing", "refused", "refused", "pending", "answered", "failed", "reserved"]),
    rowId: Schema.optionalKey(Schema.Literals(["r-0", "r-1", "r-2"]))
  })
).check(Schema.isMaxLength(12))

const Rows = Schema.Array(
  Schema.Struct({
    second: Schema.optionalKey(Second),
    costUsd: Schema.Literals([0, 0, 0, 0.01]),
    status: Schema.Literals(["failure", "failure", "success"])
  })
).check(Schema.isMaxLength(12))

const entriesOf = (calls: typeof Calls.Type) =>
  calls.map(({ kind, rowId, second }, index): LedgerEntry.LedgerEntry =>
    entryOf("run-00000001", `call-${index}`, {
      at: instant(second),
      ...kinds[kind],
      ...(rowId === undefined ? {} : { upstreamCallId: rowId })
    })
  )

const rowsOf = (rows: typeof Rows.Type) =>
  rows.map(({ costUsd, second, status }, index): SpendRows.SpendRow => ({
    rowId: `r-${index}`,
    costUsd,
    status,
    ...(second === undefined ? {} : { startedAt: instant(second) })
  }))

describe("a row with an ID of the upstream's own", () => {
  it.prop(
    "is given to one call without another row, near in time, or is strange, or waits",
    [Calls, Rows],
    ([calls, rows]) => {
      const [before, seen] = [entriesOf(calls), rowsOf(rows)]
      const { given, strange } = RefusedCalls.sort(before, seen, skewSeconds)
      const taken = before.flatMap(({ upstreamCallId }) => upstreamCallId ?? [])
      const placed = [...given.map(({ row }) => row.rowId), ...strange.map(({ rowId }) => rowId)]
      assert.strictEqual(new Set(placed).size, placed.length)
      assert.strictEqual(new Set(given.map(({ entry }) => entry.usageUnitId)).size, given.length)
      for (const { entry, row } of given) {
        assert.isTrue(row.status === "failure" && row.costUsd === 0)
        assert.isFalse(taken.includes(row.rowId))
        assert.isUndefined(entry.upstreamCallId)
        assert.include(["no_row", "no_row_expected"], entry.reason)
        const distance = Math.abs(Date.parse(row.startedAt ?? "") - Date.parse(entry.at))
        assert.isAtMost(distance, skewSeconds * 1000)
      }
      const undecided = before.some(({ state }) => state === "pending" || state === "estimated")
      const open = seen.filter(({ rowId }) => !taken.includes(rowId)).length
      if (undecided) assert.isAtMost(placed.length, open)
      else assert.strictEqual(placed.length, open)
    },
    { arbitrary: { runs: 2000, seed: "refused-calls-1" } }
  )

  it.prop(
    "changes neither the state nor the charge of its call, and is not looked for again",
    [Calls, Rows],
    ([calls, rows]) => {
      const [before, seen] = [entriesOf(calls), rowsOf(rows)]
      const { given } = RefusedCalls.sort(before, seen, skewSeconds)
      const corrections = given.map((pair) => RefusedCalls.correction(pair, instant(3000)))
      for (const [index, after] of corrections.entries()) {
        const { entry } = given[index]!
        assert.deepStrictEqual(
          [after.state, after.costUsd, after.priceSource, after.revision],
          [entry.state, entry.costUsd, entry.priceSource, entry.revision + 1]
        )
      }
      const units = new Map([...before, ...corrections].map((entry) => [entry.usageUnitId, entry]))
      const again = RefusedCalls.sort([...units.values()], seen, skewSeconds)
      const found = new Set(given.map(({ row }) => row.rowId))
      assert.isTrue(again.given.every(({ row }) => !found.has(row.rowId)))
      assert.isTrue(again.strange.every(({ rowId }) => !found.has(rowId)))
    },
    { arbitrary: { runs: 2000, seed: "refused-calls-1" } }
  )
})
