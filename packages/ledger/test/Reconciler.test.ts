import { assert, describe, it } from "@effect/vitest"
import { Ledger, Reconciler, SpendRows } from "@cogni/sandbox-ledger"
import { Clock, Effect, Layer, Logger, Metric, Stream } from "effect"
import { TestClock } from "effect/testing"
import { entry, key, limits, nowMs, row, setUp, unavailable } from "./ReconcilerSetUp.ts"

describe("Reconciler in the background", () => {
  it.effect("goes on after failures, warns once about each, and heals missing calls", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const logger = Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
      const { ledger, newest, spend } = yield* setUp([entry("call-1")])
      yield* spend.fail(unavailable)
      yield* Effect.forkChild(
        Reconciler.repeated(60).pipe(
          Effect.provide(
            Layer.merge(
              logger,
              Reconciler.layer({ limits }).pipe(
                Layer.provide(Layer.succeed(Ledger.Ledger, ledger)),
                Layer.provide(Layer.succeed(SpendRows.SpendRows, spend.service))
              )
            )
          )
        )
      )
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual(lines.filter((line) => line.includes("it does not answer")).length, 1)
      yield* spend.fail(undefined)
      yield* TestClock.adjust("1 minute")
      assert.deepInclude((yield* newest)[0]!, { state: "missing" })
      yield* spend.write([row("call-1")])
      yield* TestClock.adjust("20 minutes")
      assert.deepInclude((yield* newest)[0]!, { state: "matched" })
    })
  )
})

describe("Reconciler", () => {
  it.effect("finds the rows of a run with one query for its key", () =>
    Effect.gen(function* () {
      const units = Array.from({ length: 50 }, (_, index) => `call-${index}`)
      const { newest, reconcile, spend } = yield* setUp(units.map((unit) => entry(unit)))
      yield* spend.write(units.map((unit) => row(unit)))
      const report = yield* reconcile()
      assert.deepInclude(report, { checked: 50, rows: 50, unresolved: 0, waiting: 0, unread: 0 })
      assert.strictEqual(report.recorded.matched, 50)
      assert.isTrue((yield* newest).every(({ state }) => state === "matched"))
      const asked = yield* spend.asked
      assert.deepStrictEqual(
        asked.map(({ _tag }) => _tag),
        ["RunKey"]
      )
      yield* reconcile()
      assert.lengthOf(yield* spend.asked, 1)
    })
  )

  it.effect("finds the rows of an account in windows of time, if runs have no key", () =>
    Effect.gen(function* () {
      const units = Array.from({ length: 10 }, (_, index) => `call-${index}`)
      const { reconcile, spend } = yield* setUp(
        units.map((unit, index) => {
          const { runKeyHash: _key, ...keyless } = entry(unit, {
            at: index < 5 ? "2026-01-31T10:00:01.000Z" : "2026-01-31T09:00:01.000Z"
          })
          return keyless
        })
      )
      yield* spend.write(
        units.map((unit, index) =>
          row(unit, { startedAt: index < 5 ? "2026-01-31T10:00:01.000Z" : "2026-01-31T09:00:01.000Z" })
        )
      )
      assert.strictEqual((yield* reconcile()).recorded.matched, 10)
      assert.deepStrictEqual(
        (yield* spend.asked).map(({ _tag }) => _tag),
        ["Account", "Account"]
      )
    })
  )

  it.effect("waits for a late row, and matches it when it comes", () =>
    Effect.gen(function* () {
      const { newest, reconcile, spend } = yield* setUp([entry("call-1")])
      assert.deepInclude(yield* reconcile(), { waiting: 1, unresolved: 0 })
      yield* TestClock.adjust("2 minutes")
      assert.deepInclude(yield* reconcile(), { waiting: 1 })
      yield* spend.write([row("call-1")])
      yield* reconcile()
      assert.deepInclude((yield* newest)[0]!, { revision: 1, state: "matched" })
    })
  )

  it.effect("does not ask for a row before the upstream can have written it", () =>
    Effect.gen(function* () {
      const { reconcile, spend } = yield* setUp([
        entry("call-1", { recordedAt: new Date(nowMs).toISOString() })
      ])
      assert.deepInclude(yield* reconcile(), { checked: 1, waiting: 1 })
      assert.lengthOf(yield* spend.asked, 0)
    })
  )

  it.effect(
    "reports a call without a row after its deadline, and heals it when the row comes still later",
    () =>
      Effect.gen(function* () {
        const { newest, reconcile, spend } = yield* setUp([entry("call-1")])
        yield* TestClock.adjust("1 hour")
        const report = yield* reconcile()
        assert.deepInclude(report, { unresolved: 1, waiting: 0 })
        assert.deepInclude((yield* newest)[0]!, { state: "missing", reason: "no_row", costUsd: 0.000_125 })
        yield* spend.write([row("call-1")])
        assert.deepInclude(yield* reconcile(), { checked: 0 })
        yield* reconcile({ which: "missing" })
        assert.deepInclude((yield* newest)[0]!, { revision: 2, state: "matched" })
      })
  )

  it.effect("looks a call up by its ID before it is missing: another clock or another key", () =>
    Effect.gen(function* () {
      const { newest, reconcile, spend } = yield* setUp([entry("call-1"), entry("call-2")])
      yield* spend.write([
        row("call-1", { startedAt: "2026-01-31T23:00:01.000Z" }),
        row("call-2", { runKeyHash: "b".repeat(64) })
      ])
      yield* TestClock.adjust("1 hour")
      yield* reconcile()
      assert.deepStrictEqual(
        (yield* newest).map(({ reason, state }) => [state, reason]),
        [
          ["matched", undefined],
          ["drifted", "key_differs"]
        ]
      )
    })
  )

  it.effect("changes nothing while rows cannot be read, whatever the deadline", () =>
    Effect.gen(function* () {
      const { newest, reconcile, spend } = yield* setUp([entry("call-1")])
      yield* spend.fail(unavailable)
      yield* TestClock.adjust("1 day")
      const report = yield* reconcile()
      assert.deepInclude(report, { unread: 1, unresolved: 0, waiting: 0 })
      assert.strictEqual(report.failure?.problem, "unreachable")
      assert.deepInclude((yield* newest)[0]!, { revision: 0, state: "pending" })
      yield* spend.fail(undefined)
      yield* spend.write([row("call-1")])
      assert.strictEqual((yield* reconcile()).recorded.matched, 1)
    })
  )

  it.effect("asks an upstream that refuses its key only for as long as no answer has come", () =>
    Effect.gen(function* () {
      const { newest, reconcile, spend } = yield* setUp(
        Array.from({ length: 40 }, (_, index) =>
          entry(`call-${index}`, { runKeyHash: String(index).padStart(64, "0") })
        )
      )
      const refused = {
        problem: "key_refused",
        detail: "it answers 401",
        remedy: "Give its master key"
      } as const
      yield* spend.fail(new SpendRows.SpendRowsUnavailable(refused))
      yield* TestClock.adjust("1 hour")
      assert.deepInclude(yield* reconcile(), { unread: 40, unresolved: 0 })
      assert.isAtMost((yield* spend.asked).length, 4)
      assert.isTrue((yield* newest).every(({ state }) => state === "pending"))
    })
  )

  it.effect("reads the other calls if one answer is unreadable", () =>
    Effect.gen(function* () {
      const other = "b".repeat(64)
      const { ledger, newest, spend } = yield* setUp([
        entry("call-1"),
        entry("call-2", { runKeyHash: other })
      ])
      yield* spend.write([row("call-2", { runKeyHash: other })])
      const problem = new SpendRows.SpendRowsUnavailable({
        problem: "unreadable",
        detail: "its answer is not JSON",
        remedy: "Check it"
      })
      const { reconcile } = yield* Reconciler.make({ limits }).pipe(
        Effect.provideService(Ledger.Ledger, ledger),
        Effect.provideService(SpendRows.SpendRows, {
          ...spend.service,
          rowsOf: (query) =>
            query._tag === "RunKey" && query.runKeyHash === key
              ? Stream.fail(problem)
              : spend.service.rowsOf(query)
        })
      )
      const { failure, unread } = yield* reconcile()
      assert.deepStrictEqual([failure?.problem, unread], ["unreadable", 1])
      assert.deepStrictEqual(
        (yield* newest).map(({ state }) => state),
        ["pending", "matched"]
      )
    })
  )

  it.effect("asks for calls by their IDs if an upstream ignores the filter of a query", () =>
    Effect.gen(function* () {
      const { ledger, newest, spend } = yield* setUp([entry("call-1")])
      yield* spend.write([row("call-1")])
      const problem = new SpendRows.SpendRowsUnavailable({
        problem: "filter_ignored",
        detail: "it returned rows that were not asked for",
        remedy: "Update it"
      })
      const { reconcile } = yield* Reconciler.make({ limits }).pipe(
        Effect.provideService(Ledger.Ledger, ledger),
        Effect.provideService(SpendRows.SpendRows, {
          ...spend.service,
          rowsOf: (query) => (query._tag === "RunKey" ? Stream.fail(problem) : spend.service.rowsOf(query))
        })
      )
      assert.strictEqual((yield* reconcile()).recorded.matched, 1)
      assert.deepInclude((yield* newest)[0]!, { state: "matched" })
    })
  )

  it.effect("shows a row of a run's key that belongs to no call, and does not charge it", () =>
    Effect.gen(function* () {
      const { ledger, newest, reconcile, spend } = yield* setUp([
        entry("call-1", { at: "2026-01-31T10:04:00.000Z" })
      ])
      // It claims to be of the future.
      yield* spend.write([
        row("call-1"),
        row("other-call", { costUsd: 3, startedAt: "2026-01-31T10:08:00.000Z" })
      ])
      const report = yield* reconcile()
      assert.deepInclude(report, { unresolved: 1 })
      const stranger = (yield* newest).find(({ usageUnitId }) => usageUnitId !== "call-1")
      assert.deepInclude(stranger!, {
        usageUnitId: "row:other-call",
        state: "drifted",
        reason: "unknown_call"
      })
      assert.isUndefined(stranger!.costUsd)
      const { entries } = yield* ledger.list({})
      // Neither the run's reservation nor a day to come is charged for it.
      assert.deepInclude(
        entries.find(({ usageUnitId }) => usageUnitId === "row:other-call")!,
        {
          reservedUsd: 0,
          at: new Date(nowMs).toISOString()
        }
      )
      const { sums } = yield* ledger.sums({ by: "total" })
      assert.strictEqual(sums[0]?.cost, 125_000_000n as never)
      assert.strictEqual((yield* reconcile({ which: "all" })).recorded.drifted, 0)
    })
  )

  it.effect("does not judge the rows of a run that is still open", () =>
    Effect.gen(function* () {
      const { newest, reconcile, spend } = yield* setUp([entry("call-1")], { open: true })
      yield* spend.write([row("call-1"), row("call-2")])
      yield* reconcile()
      assert.lengthOf(yield* newest, 1)
    })
  )

  it.effect("finds a second row that came later, and keeps a verdict whose row was deleted", () =>
    Effect.gen(function* () {
      const { newest, reconcile, spend } = yield* setUp([entry("call-1"), entry("call-2")])
      yield* spend.write([row("call-1"), row("call-2", { costUsd: 8 })])
      yield* reconcile()
      yield* spend.write([row("call-1", { rowId: "again" })])
      assert.deepInclude(yield* reconcile({ which: "all" }), { unresolved: 2 })
      assert.deepInclude((yield* newest)[0]!, { state: "drifted", reason: "duplicate_rows", revision: 2 })
      yield* spend.clear
      yield* TestClock.adjust("30 days")
      yield* reconcile({ which: "all" })
      assert.deepStrictEqual(
        (yield* newest).map(({ reason }) => reason),
        ["duplicate_rows", "cost_differs"]
      )
    })
  )

  it.effect("two reconcilers at once record, count and report each verdict once", () =>
    Effect.gen(function* () {
      const lines: Array<unknown> = []
      const logger = Logger.layer([Logger.make(({ message }) => void lines.push(message))])
      const { newest, reconcile, spend } = yield* setUp([entry("call-1"), entry("call-2")])
      yield* spend.write([row("call-1", { costUsd: 7 }), row("call-2")])
      // Two processes do not record a verdict in the same millisecond.
      const clock = yield* Clock.Clock
      const later = {
        ...clock,
        currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis + 1)
      } as Clock.Clock
      const reports = yield* Effect.all(
        [reconcile(), Effect.provideService(reconcile(), Clock.Clock, later)],
        { concurrency: 2 }
      ).pipe(Effect.provide(logger))
      assert.strictEqual(reports[0].recorded.matched + reports[1].recorded.matched, 1)
      assert.strictEqual(reports[0].recorded.drifted + reports[1].recorded.drifted, 1)
      assert.deepStrictEqual(
        (yield* newest).map(({ revision }) => revision),
        [1, 1]
      )
      assert.lengthOf(lines, 1)
      assert.include(String(lines[0]), "cost_differs")
    })
  )

  it.effect("counts verdicts by state and reason", () =>
    Effect.gen(function* () {
      const { reconcile, spend } = yield* setUp([entry("call-1"), entry("call-2")])
      yield* spend.write([row("call-1", { costUsd: 7 }), row("call-2")])
      yield* reconcile()
      const counted = (yield* Metric.snapshot)
        .filter(({ id }) => id === "sandbox_reconciled_calls_total")
        .map(({ attributes, state }) => [attributes?.["state"], attributes?.["reason"], (state as any).count])
      assert.sameDeepMembers(counted, [
        ["drifted", "cost_differs", 1],
        ["matched", "none", 1]
      ])
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map()))
  )

  it.effect("limits the calls that a pass looks up, and goes on with the next one", () =>
    Effect.gen(function* () {
      const units = Array.from({ length: 5 }, (_, index) => `call-${index}`)
      const { newest, reconcile } = yield* setUp(
        units.map((unit) => entry(unit)),
        { limits: { lookupsMax: 2 } }
      )
      yield* TestClock.adjust("1 hour")
      for (const left of [3, 1, 0]) assert.strictEqual((yield* reconcile()).unread, left)
      assert.isTrue((yield* newest).every(({ state }) => state === "missing"))
    })
  )

  it.effect("asks for calls by their IDs if a query has too many rows", () =>
    Effect.gen(function* () {
      const { reconcile, spend } = yield* setUp([entry("call-1")], { limits: { rowsMax: 3 } })
      yield* spend.write(["call-1", "call-2", "call-3", "call-4"].map((unit) => row(unit)))
      assert.strictEqual((yield* reconcile()).recorded.matched, 1)
    })
  )

  it.effect("ends the waiting of an upstream without rows, with the cost of a price list", () =>
    Effect.gen(function* () {
      const { costUsd: _cost, ...uncosted } = entry("call-2")
      const { newest, reconcile } = yield* setUp([entry("call-1"), { ...uncosted, priceSource: "none" }], {
        abilities: { accounts: false, calls: false, runKeys: false },
        priceOf: () => Effect.succeed({ costUsd: 0.5, source: "a list of 2026-01-01" })
      })
      yield* reconcile()
      yield* reconcile({ which: "all" })
      assert.deepStrictEqual(
        (yield* newest).map(({ costUsd, reason, revision, state }) => [state, reason, costUsd, revision]),
        [
          ["estimated", "no_rows_kept", 0.000_125, 1],
          ["estimated", "price_list", 0.5, 1]
        ]
      )
    })
  )

  it.effect("asks for calls by the upstream's own IDs, and never calls one missing that has none", () =>
    Effect.gen(function* () {
      const { costUsd: _cost, ...unpriced } = entry("call-4")
      const { newest, reconcile, spend } = yield* setUp(
        [
          entry("call-1", { upstreamCallId: "gen-1" }),
          entry("call-2", { upstreamCallId: "gen-2" }),
          entry("call-3"),
          { ...unpriced, priceSource: "none" },
          entry("call-5", { upstreamCallId: " no filter " }),
          { ...unpriced, usageUnitId: "call-6", priceSource: "none", outcome: "upstream_unreachable" }
        ],
        {
          abilities: { accounts: false, calls: true, runKeys: false, upstreamCallIdsOnly: true },
          priceOf: () => Effect.succeed({ costUsd: 0.5, source: "a list of 2026-01-01" })
        }
      )
      yield* spend.write([row("call-1", { rowId: "gen-1" })])
      const { failure, unread } = yield* reconcile()
      assert.deepStrictEqual([failure, unread], [undefined, 0])
      yield* TestClock.adjust("1 hour")
      yield* reconcile({ which: "all" })
      assert.deepStrictEqual(
        (yield* newest).map(({ costUsd, reason, revision, state }) => [state, reason, costUsd, revision]),
        [
          ["matched", undefined, 0.000_125, 1],
          ["missing", "no_row", 0.000_125, 1],
          ["estimated", "no_upstream_id", 0.000_125, 1],
          ["estimated", "price_list", 0.5, 1],
          ["estimated", "no_upstream_id", 0.000_125, 1],
          ["matched", "no_row_expected", 0, 1]
        ]
      )
      const [query] = yield* spend.asked
      assert.deepStrictEqual(query, {
        _tag: "Calls",
        calls: [
          { callId: "call-1", upstreamCallId: "gen-1" },
          { callId: "call-2", upstreamCallId: "gen-2" }
        ]
      })
    })
  )

  it.effect("finds calls that a broken audit has lost by the key of their run, and never charges them", () =>
    Effect.gen(function* () {
      const { costUsd: _cost, inputTokens: _input, outputTokens: _output, ...unknown } = entry("unknown")
      const lost = { ...unknown, priceSource: "none", reason: "audit_broken" } as const
      const { newest, reconcile, spend } = yield* setUp([lost])
      const states = Effect.map(newest, (all) =>
        all.map(({ costUsd, reason, state, usageUnitId }) => [usageUnitId, state, reason, costUsd])
      )
      yield* reconcile()
      assert.deepStrictEqual(yield* states, [["unknown", "pending", "audit_broken", undefined]])
      yield* TestClock.adjust("1 hour")
      yield* reconcile()
      assert.deepStrictEqual(yield* states, [["unknown", "matched", "no_row_expected", undefined]])
      // After the run was recorded, but within the tolerated difference of the clocks.
      yield* spend.write([row("call-9", { startedAt: "2026-01-31T10:09:00.000Z" })])
      const { unresolved } = yield* reconcile({ which: "all" })
      assert.strictEqual(unresolved, 2)
      assert.sameDeepMembers(yield* states, [
        ["unknown", "drifted", "unknown_call", undefined],
        ["row:call-9", "drifted", "unknown_call", undefined]
      ])
      const again = yield* reconcile({ which: "all" })
      assert.deepInclude(again.recorded, { drifted: 0, matched: 0 })
    })
  )

  it.effect("leaves the calls of another upstream alone", () =>
    Effect.gen(function* () {
      const { listed, newest, reconcile } = yield* setUp([entry("call-1", { upstream: "openrouter" })])
      yield* TestClock.adjust("1 hour")
      const counted = yield* reconcile({ countsForeign: true })
      assert.deepInclude(counted, { checked: 0, foreign: 1, unread: 0, unresolved: 0 })
      assert.deepInclude(yield* reconcile(), { foreign: 0 })
      // They are not even read, because their number grows without a limit.
      assert.deepStrictEqual(listed, [0, 0])
      assert.deepInclude((yield* newest)[0]!, { state: "pending" })
    })
  )
})
