/** Rows of a run's key that belong to no call: whether the key is used by another, and what is only a refusal. */
import { assert, describe, it } from "@effect/vitest"
import { Ledger, Reconciler, SpendRows } from "@cogni/sandbox-ledger"
import { Effect, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as RunKeyRows from "../src/internal/RunKeyRows.ts"
import { entryOf, runOf } from "../src/testing/LedgerSamples.ts"
import { entry, key, limits, row, setUp, unavailable } from "./ReconcilerSetUp.ts"

/** Recorded so long ago that its row would be late. */
const old = { recordedAt: "2026-01-31T10:00:30.000Z" }

/** A call that the upstream answered and refused. */
const refused = { ...old, costUsd: 0, priceSource: "free", reason: "not_run" } as const

const reserved = {
  ...old,
  costUsd: 0.005,
  priceSource: "reservation",
  state: "estimated",
  outcome: "client_aborted"
} as const

/** A row that LiteLLM writes for a call that it refused before it read the ID. */
const refusal = (rowId: string, changes: Partial<SpendRows.SpendRow> = {}) =>
  row(rowId, { endUser: "", status: "failure", costUsd: 0, inputTokens: 0, outputTokens: 0, ...changes })

/** Another user of the key pays with it. */
const theft = (rowId: string, changes: Partial<SpendRows.SpendRow> = {}) =>
  row(rowId, { costUsd: 500, ...changes })

const linesOf = Effect.fnUntraced(function* ({ ledger }: { readonly ledger: Ledger.Ledger["Service"] }) {
  const { entries } = yield* ledger.list({})
  return entries
    .map(({ costUsd, reason, state, usageUnitId }) => [usageUnitId, state, reason, costUsd].join(" "))
    .toSorted()
})

/** Makes a reconciler of the same ledger over other rows. */
const over = (
  { ledger, spend }: { readonly ledger: Ledger.Ledger["Service"]; readonly spend: SpendRows.MemorySpendRows },
  rowsOf: SpendRows.SpendRows["Service"]["rowsOf"]
) =>
  Effect.map(
    Reconciler.make({ limits }).pipe(
      Effect.provideService(Ledger.Ledger, ledger),
      Effect.provideService(SpendRows.SpendRows, { ...spend.service, rowsOf })
    ),
    ({ reconcile }) => reconcile
  )

describe("a row that failed and costs nothing", () => {
  it.effect("is explained by a call that was refused or not answered, and has no row", () =>
    Effect.gen(function* () {
      const set = yield* setUp([
        entry("call-1"),
        entry("call-2", refused),
        entry("call-3", reserved),
        entry("call-4", { ...refused, reason: "no_model" }),
        entry("call-5", { ...refused, outcome: "upstream_unreachable" })
      ])
      yield* set.spend.write([row("call-1"), ...["r-1", "r-2", "r-3"].map((id) => refusal(id))])
      const first = yield* set.reconcile()
      const after = [
        "call-1 matched  0.000125",
        "call-2 matched refused_call 0",
        "call-3 missing no_row 0.005",
        "call-4 matched no_row_expected 0",
        "call-5 matched no_row_expected 0",
        "row:r-1 matched failed_call 0",
        "row:r-2 matched failed_call 0",
        "row:r-3 drifted unknown_call "
      ]
      assert.deepStrictEqual(yield* linesOf(set), after)
      assert.deepStrictEqual(first.recorded, { pending: 0, matched: 6, drifted: 1, missing: 1, estimated: 0 })
      for (const which of ["open", "missing", "all"] as const) {
        const again = yield* set.reconcile({ which })
        assert.deepInclude(again.recorded, { matched: 0, drifted: 0, missing: 0 })
        assert.deepStrictEqual(yield* linesOf(set), after)
      }
      const { sums } = yield* set.ledger.sums({ by: "total" })
      assert.deepInclude(sums[0]!, { cost: 5_125_000_000n as never, callsWithoutCost: 1 })
    })
  )

  it.effect("explains no row that costs something, succeeded, or names a call or a run", () =>
    Effect.gen(function* () {
      const set = yield* setUp(Array.from({ length: 6 }, (_, index) => entry(`call-${index}`, refused)))
      yield* set.spend.write([
        refusal("r-1", { costUsd: 0.1 }),
        refusal("r-2", { status: "success" }),
        refusal("r-3", { metadata: { runId: "run-00000009" } }),
        refusal("r-4", { callId: "call-9" }),
        refusal("r-5", { runKeyHash: "b".repeat(64) })
      ])
      yield* set.reconcile()
      assert.deepStrictEqual(
        (yield* linesOf(set)).filter((line) => line.startsWith("row:")),
        [1, 2, 3, 4].map((index) => `row:r-${index} drifted unknown_call `)
      )
    })
  )

  it.effect("waits while a call of its key has no verdict", () =>
    Effect.gen(function* () {
      const set = yield* setUp(
        [
          entry("call-1"),
          entry("call-2", { ...refused, recordedAt: "2026-01-31T10:05:00.000Z" }),
          entry("unknown", {
            costUsd: undefined as never,
            priceSource: "none",
            reason: "audit_broken",
            ...old
          })
        ].map(({ costUsd, ...rest }) => (costUsd === undefined ? rest : { ...rest, costUsd }))
      )
      yield* set.spend.write([row("call-1"), refusal("r-1")])
      yield* set.reconcile()
      const before = ["call-1 matched  0.000125", "call-2 pending not_run 0", "unknown pending audit_broken "]
      assert.deepStrictEqual(yield* linesOf(set), before)
      yield* TestClock.adjust("10 minutes")
      yield* set.reconcile()
      yield* set.reconcile()
      assert.deepStrictEqual(yield* linesOf(set), [
        "call-1 matched  0.000125",
        "call-2 matched refused_call 0",
        "row:r-1 matched failed_call 0",
        "unknown matched no_row_expected "
      ])
    })
  )
})

describe("a key that another user has", () => {
  it.effect("is reported behind the rows of 2,000 calls", () =>
    Effect.gen(function* () {
      const units = Array.from({ length: 2000 }, (_, index) => `call-${index}`)
      const set = yield* setUp(units.map((unit) => entry(unit)))
      yield* set.spend.write([...units.map((unit) => row(unit)), theft("thief")])
      yield* set.reconcile()
      const { entries } = yield* set.ledger.list({ usageUnitIds: ["row:thief"] })
      assert.deepInclude(entries[0]!, { state: "drifted", reason: "unknown_call" })
    })
  )

  it.effect("is reported although the thief hides it behind 1,000 rows that cost less", () =>
    Effect.gen(function* () {
      const set = yield* setUp([entry("call-1")])
      const cheap = Array.from({ length: RunKeyRows.reportedMax }, (_, index) =>
        theft(`cheap-${index}`, { costUsd: 0.001 })
      )
      yield* set.spend.write([row("call-1"), ...cheap, theft("thief")])
      yield* set.reconcile()
      yield* set.reconcile({ which: "all" })
      const { entries } = yield* set.ledger.list({ usageUnitIds: ["row:thief", "row:cheap-999"] })
      assert.deepStrictEqual(
        entries.map(({ state }) => state),
        ["drifted", "drifted"],
        "the next pass reports the rest"
      )
    })
  )

  it.effect("is reported although the thief chose an ID of the ledger's own", () =>
    Effect.gen(function* () {
      const { costUsd: _, ...lost } = entry("unknown", {
        ...old,
        priceSource: "none",
        reason: "audit_broken"
      })
      const set = yield* setUp([entry("call-1"), lost])
      yield* set.spend.write([
        row("call-1"),
        theft("r-1", { callId: "unknown" }),
        theft("r-2", { callId: "row:r-1" })
      ])
      yield* set.reconcile()
      yield* set.reconcile({ which: "all" })
      assert.deepStrictEqual(yield* linesOf(set), [
        "call-1 matched  0.000125",
        "row:r-1 drifted unknown_call ",
        "row:r-2 drifted unknown_call ",
        "unknown drifted unknown_call "
      ])
    })
  )

  const spans = { runKeyHash: key }

  it.effect("is found at the end of its run, although it was used at another time than the calls", () =>
    Effect.gen(function* () {
      const set = yield* setUp([entry("call-1")], spans)
      yield* set.spend.write([row("call-1"), theft("thief", { startedAt: "2026-01-31T10:09:00.000Z" })])
      yield* set.reconcile()
      assert.deepStrictEqual(yield* linesOf(set), ["call-1 matched  0.000125"])
      yield* TestClock.adjust("15 minutes")
      const report = yield* set.reconcile()
      assert.deepInclude(report, { unresolved: 1 })
      assert.include(yield* linesOf(set), "row:thief drifted unknown_call ")
    })
  )

  it.effect(
    "is found when it has expired, although all calls have a verdict, and is asked for no longer",
    () =>
      Effect.gen(function* () {
        const set = yield* setUp([entry("call-1")], spans)
        yield* set.spend.write([row("call-1")])
        yield* TestClock.adjust("15 minutes")
        yield* set.reconcile()
        const [run] = yield* set.ledger.attempts("run-00000001")
        yield* set.spend.write([theft("thief", { startedAt: run!.expiresAt })])
        yield* set.reconcile()
        assert.deepStrictEqual(yield* linesOf(set), ["call-1 matched  0.000125"])
        yield* TestClock.setTime(Date.parse(run!.expiresAt) + 3_600_000)
        yield* set.reconcile()
        assert.include(yield* linesOf(set), "row:thief drifted unknown_call ")
        const { length } = yield* set.spend.asked
        yield* set.reconcile()
        assert.lengthOf(yield* set.spend.asked, length)
      })
  )

  it.effect("is found although the run made no call", () =>
    Effect.gen(function* () {
      const set = yield* setUp([], spans)
      yield* set.spend.write([theft("thief")])
      yield* TestClock.adjust("15 minutes")
      yield* set.reconcile()
      assert.deepStrictEqual(yield* linesOf(set), ["row:thief drifted unknown_call "])
    })
  )

  it.effect("is found by a later pass if the first one was cut off after its verdicts", () =>
    Effect.gen(function* () {
      let appended = 0
      const set = yield* setUp([entry("call-1")], {
        ...spans,
        fault: (operation) => (operation === "append" && ++appended === 2 ? "before" : undefined)
      })
      yield* set.spend.write([row("call-1"), theft("thief")])
      assert.strictEqual((yield* Effect.flip(set.reconcile()))._tag, "LedgerUnavailable")
      yield* TestClock.adjust("15 minutes")
      yield* set.reconcile()
      assert.include(yield* linesOf(set), "row:thief drifted unknown_call ")
    })
  )

  it.effect("stays due while its rows cannot be read, and keeps no other key from its check", () =>
    Effect.gen(function* () {
      const set = yield* setUp([], spans)
      const other = { runKeyHash: "b".repeat(64) }
      const healthy = runOf("run-00000002")
      yield* set.ledger.open(healthy)
      yield* set.ledger.settle({ run: healthy, entries: [], closedAt: "2026-01-31T10:05:01.000Z", ...other })
      yield* TestClock.adjust("20 minutes")
      yield* set.spend.write([theft("thief"), theft("other", other)])
      let isSick = true
      const reconcile = yield* over(set, (query) =>
        isSick && query._tag === "RunKey" && query.runKeyHash === key
          ? Stream.fail(unavailable)
          : set.spend.service.rowsOf(query)
      )
      assert.strictEqual((yield* reconcile()).failure, unavailable)
      assert.deepStrictEqual(yield* linesOf(set), ["row:other drifted unknown_call "])
      isSick = false
      yield* TestClock.adjust("25 minutes")
      yield* reconcile()
      assert.include(yield* linesOf(set), "row:thief drifted unknown_call ")
    })
  )

  it.effect("is checked although the calls of a pass could not be compared", () =>
    Effect.gen(function* () {
      const set = yield* setUp([], spans)
      yield* set.ledger.append([entryOf("run-00000009", "call-9", old)])
      yield* TestClock.adjust("20 minutes")
      yield* set.spend.write([theft("thief")])
      const reconcile = yield* over(set, (query) =>
        query._tag === "RunKey" ? set.spend.service.rowsOf(query) : Stream.fail(unavailable)
      )
      yield* reconcile()
      assert.include(yield* linesOf(set), "row:thief drifted unknown_call ")
    })
  )

  it.effect("is reported if it has more rows than a check reads", () =>
    Effect.gen(function* () {
      const set = yield* setUp([], { ...spans, limits: { rowsMax: 2 } })
      yield* set.spend.write([theft("thief"), ...[1, 2, 3].map((index) => refusal(`r-${index}`))])
      yield* TestClock.adjust("15 minutes")
      yield* set.reconcile()
      assert.includeMembers(yield* linesOf(set), [
        "row:beyond drifted unknown_call ",
        "row:thief drifted unknown_call "
      ])
      const { length } = yield* set.spend.asked
      yield* set.reconcile()
      assert.lengthOf(yield* set.spend.asked, length, "is not asked for again until it expires")
    })
  )

  it.effect("is found by a second row of a call that has a verdict", () =>
    Effect.gen(function* () {
      const set = yield* setUp([entry("call-1")], spans)
      yield* set.spend.write([row("call-1")])
      yield* set.reconcile()
      yield* set.spend.write([theft("chatcmpl-x", { callId: "call-1" })])
      yield* TestClock.adjust("15 minutes")
      yield* set.reconcile()
      assert.deepStrictEqual(yield* linesOf(set), ["call-1 drifted duplicate_rows 0.000125"])
    })
  )

  it.effect("is reported row by row over several passes, until none is left", () =>
    Effect.gen(function* () {
      const set = yield* setUp([], spans)
      yield* set.spend.write(Array.from({ length: 2500 }, (_, index) => theft(`thief-${index}`)))
      yield* TestClock.adjust("15 minutes")
      const reports = [yield* set.reconcile(), yield* set.reconcile(), yield* set.reconcile()]
      assert.deepStrictEqual(
        reports.map(({ recorded, truncated }) => [recorded.drifted, truncated]),
        [
          [1000, true],
          [1000, true],
          [500, false]
        ]
      )
    })
  )

  it.effect("is reported whatever time its row has", () =>
    Effect.gen(function* () {
      const set = yield* setUp([entry("call-1")])
      const times = ["-000001-12-31T10:00:00.000Z", "nonsense", "9999-12-31T00:00:00.000Z"]
      const rows = [row("call-1"), ...times.map((startedAt, index) => theft(`thief-${index}`, { startedAt }))]
      const reconcile = yield* over(set, () => Stream.fromIterable(rows))
      yield* reconcile()
      assert.lengthOf(
        (yield* linesOf(set)).filter((line) => line.startsWith("row:thief-")),
        3
      )
    })
  )

  it.effect("is checked in the background after a fault of an earlier pass", () =>
    Effect.gen(function* () {
      const set = yield* setUp([], spans)
      yield* set.spend.write([theft("thief")])
      let passes = 0
      yield* Effect.forkChild(
        Effect.provideService(Reconciler.repeated(60), Reconciler.Reconciler, {
          reconcile: (scope) => (++passes === 1 ? Effect.die("a fault") : set.reconcile(scope))
        })
      )
      yield* TestClock.adjust("20 minutes")
      assert.include(yield* linesOf(set), "row:thief drifted unknown_call ")
    })
  )

  it.effect("is still reported by a later reconciliation of its run", () =>
    Effect.gen(function* () {
      const set = yield* setUp([entry("call-1")])
      yield* set.spend.write([row("call-1"), theft("thief")])
      yield* set.reconcile()
      const report = yield* set.reconcile({ runId: "run-00000001", which: "all" })
      assert.deepInclude(report, { unresolved: 1 })
    })
  )
})

describe("a report", () => {
  it.effect("has a verdict whose answer was lost", () =>
    Effect.gen(function* () {
      const set = yield* setUp([entry("call-1", old)])
      // The ledger repeats an operation whose answer was lost, and finds its own entries.
      const { reconcile } = yield* Reconciler.make({ limits }).pipe(
        Effect.provideService(Ledger.Ledger, {
          ...set.ledger,
          append: (entries) => Effect.andThen(set.ledger.append(entries), set.ledger.append(entries))
        }),
        Effect.provideService(SpendRows.SpendRows, set.spend.service)
      )
      const report = yield* reconcile()
      assert.deepInclude(report.recorded, { missing: 1 })
      assert.lengthOf(report.findings, 1)
    })
  )

  it.effect("counts each call once, whatever the borders of pages", () =>
    Effect.gen(function* () {
      const set = yield* setUp(
        Array.from({ length: 1001 }, (_, index) => entry(`call-${String(index).padStart(4, "0")}`, old))
      )
      const report = yield* set.reconcile({ which: "missing" })
      assert.deepInclude(report, { checked: 1001, unresolved: 1001 })
    })
  )

  it.effect("looks up calls without a verdict, whatever the number of missing ones", () =>
    Effect.gen(function* () {
      // A whole page.
      const missing = Array.from({ length: 1000 }, (_, index) =>
        entry(`call-${index}`, { ...old, state: "missing", reason: "no_row" })
      )
      const set = yield* setUp([...missing, entry("call-open", { ...old, at: "2026-01-31T10:00:05.000Z" })], {
        limits: { lookupsMax: 4 }
      })
      yield* set.reconcile({ which: "missing" })
      const { entries } = yield* set.ledger.list({ usageUnitIds: ["call-open"] })
      assert.deepInclude(entries[0]!, { state: "missing" })
    })
  )
})

const Figures = Schema.Struct({
  costUsd: Schema.Literals([0, 0, 0, 0.01, 7]),
  status: Schema.Literals(["failure", "failure", "success"])
})

const Few = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 8 }))

describe("the rows of a key", () => {
  it.prop(
    "are explained at most as often as calls have no row, and each that costs is reported, the dearest first",
    [Schema.Array(Figures).check(Schema.isMaxLength(15)), Few, Few, Few],
    ([figures, withoutRow, explained, open]) => {
      const rows = figures.map((figure, index): SpendRows.SpendRow => ({ rowId: `r-${index}`, ...figure }))
      const judged = RunKeyRows.judge(rows, { explained, open, withoutRow })
      assert.isAtMost(judged.explained.length, Math.max(0, withoutRow - explained))
      assert.isTrue(judged.explained.every(({ costUsd, status }) => costUsd === 0 && status === "failure"))
      assert.strictEqual(judged.explained.length + judged.strange.length + judged.waiting, rows.length)
      const dear = rows.filter((one) => !RunKeyRows.isRefusal(one))
      assert.sameMembers(judged.strange.slice(0, dear.length), dear)
      const costs = judged.strange.map(({ costUsd = 0 }) => costUsd)
      assert.deepStrictEqual(
        costs,
        costs.toSorted((a, b) => b - a)
      )
    },
    { arbitrary: { runs: 2000, seed: "rows-of-a-key-1" } }
  )
})
