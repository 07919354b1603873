/**
 * No order of late rows, repeated rows, failures and concurrent reconcilers charges a call twice or loses one.
 *
 * A schedule moves twelve calls of two runs, one of them with a key of its own. The upstream writes rows, repeats them,
 * or fails; time passes; reconcilers read it at any moment, against a ledger that fails before or after it stored
 * something. In the end, all rows are there, and one pass without faults must leave every call once, with a verdict.
 */
import { assert, describe, it } from "@effect/vitest"
import {
  Ledger,
  type LedgerEntry,
  Money,
  Reconciler,
  ReconciliationLimits,
  SpendRows
} from "@cogni/sandbox-ledger"
import * as MoneySums from "@cogni/sandbox-ledger/MoneySums"
import type * as EntryFields from "@cogni/sandbox-ledger/EntryFields"
import { Effect, Fiber, Logger, Schema } from "effect"
import { TestClock } from "effect/testing"
import { entryOf, runOf } from "../src/testing/LedgerSamples.ts"

const calls = 12
const key = "a".repeat(64)

const Step = Schema.Struct({
  kind: Schema.Literals([
    "write",
    "write",
    "write",
    "reconcile",
    "reconcile",
    "again",
    "fail",
    "work",
    "wait"
  ]),
  pick: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: calls - 1 })),
  fault: Schema.Literals(["none", "none", "before", "answer_lost"]),
  /** The step goes on while the next ones happen. */
  inBackground: Schema.Boolean
})

const Schedule = Schema.Array(Step).check(Schema.isMinLength(1), Schema.isMaxLength(24))

/** Kinds of calls: how the ledger and the rows relate. */
const Kind = Schema.Literals([
  "agrees",
  "costs_more",
  "unknown_cost",
  "reserved",
  "other_account",
  "doubled",
  "never"
])

const Kinds = Schema.Array(Kind).check(Schema.isMinLength(calls), Schema.isMaxLength(calls))

type Kind = typeof Kind.Type

const runs = [runOf("run-0000000a"), runOf("run-0000000b")]

/** Keys that the upstream issued for the runs. The second run uses the shared one. */
const runKeys = [key, undefined]

const costOf = (index: number) => MoneySums.rounded((index + 1) * 0.001)

const entryFor = (kind: Kind, index: number): LedgerEntry.LedgerEntry => {
  const run = runs[index % 2]!
  const runKeyHash = runKeys[index % 2]
  const { costUsd: _cost, ...uncosted } = entryOf(
    run.runId,
    `call-${index}`,
    runKeyHash === undefined ? {} : { runKeyHash }
  )
  switch (kind) {
    case "unknown_cost":
      return { ...uncosted, priceSource: "none" }
    case "reserved":
      return {
        ...uncosted,
        costUsd: 1,
        priceSource: "reservation",
        state: "estimated",
        outcome: "client_aborted"
      }
    default:
      return { ...uncosted, costUsd: costOf(index) }
  }
}

const rowsFor = (kind: Kind, index: number): ReadonlyArray<SpendRows.SpendRow> => {
  const row: SpendRows.SpendRow = {
    rowId: `call-${index}`,
    callId: `call-${index}`,
    runKeyHash: runKeys[index % 2] ?? "b".repeat(64),
    endUser: kind === "other_account" ? "account-2" : "account-1",
    inputTokens: 100,
    outputTokens: 10,
    costUsd: kind === "costs_more" ? 9 : costOf(index),
    startedAt: "2026-01-31T10:00:01.000Z",
    status: "success"
  }
  if (kind === "never") return []
  return kind === "doubled" ? [row, { ...row, rowId: `again-${index}` }] : [row]
}

const verdictOf: Readonly<Record<Kind, readonly [EntryFields.State, string | undefined]>> = {
  agrees: ["matched", undefined],
  costs_more: ["drifted", "cost_differs"],
  unknown_cost: ["matched", "figures_from_row"],
  reserved: ["matched", "figures_from_row"],
  other_account: ["drifted", "identity_differs"],
  doubled: ["drifted", "duplicate_rows"],
  never: ["missing", "no_row"]
}

const broken = new SpendRows.SpendRowsUnavailable({
  problem: "unavailable",
  detail: "it answers 500",
  remedy: "Wait"
})

const play = Effect.fnUntraced(function* (kinds: ReadonlyArray<Kind>, steps: typeof Schedule.Type) {
  yield* TestClock.setTime(Date.parse("2026-01-31T10:05:30.000Z"))
  const faults: Array<Ledger.MemoryFault> = []
  const ledger = yield* Ledger.makeMemory({ fault: () => faults.shift() })
  const spend = yield* SpendRows.makeMemory("litellm")
  const entries = kinds.map(entryFor)
  for (const run of runs) {
    yield* ledger.open(run)
    const own = entries.filter(({ runId }) => runId === run.runId)
    yield* ledger.settle({ run, entries: own, closedAt: "2026-01-31T10:05:00.000Z" })
  }
  const reconcilerOf = Reconciler.make({ limits: ReconciliationLimits.limitsFor() }).pipe(
    Effect.provideService(Ledger.Ledger, {
      ...ledger,
      append: (given) => Effect.andThen(Effect.yieldNow, ledger.append(given)),
      list: (filter, page) => Effect.tap(ledger.list(filter, page), () => Effect.yieldNow)
    }),
    Effect.provideService(SpendRows.SpendRows, spend.service)
  )
  const hosts = [yield* reconcilerOf, yield* reconcilerOf]
  const written = new Set<number>()

  const work = ({ kind, pick }: typeof Step.Type): Effect.Effect<unknown> => {
    switch (kind) {
      case "write":
        written.add(pick)
        return spend.write(rowsFor(kinds[pick]!, pick))
      case "reconcile":
        return Effect.ignore(hosts[pick % 2]!.reconcile())
      case "again":
        return Effect.ignore(hosts[pick % 2]!.reconcile({ which: "all" }))
      case "fail":
        return spend.fail(broken)
      case "work":
        return spend.fail(undefined)
      case "wait":
        return TestClock.adjust(`${pick} minutes`)
    }
  }

  const background: Array<Fiber.Fiber<unknown>> = []
  for (const step of steps) {
    if (step.fault !== "none") faults.push(step.fault)
    const fiber = yield* Effect.forkChild(work(step), { startImmediately: true })
    if (step.inBackground) background.push(fiber)
    else yield* Fiber.join(fiber)
  }
  yield* Fiber.joinAll(background)

  faults.length = 0
  yield* spend.fail(undefined)
  for (const [index, kind] of kinds.entries())
    if (!written.has(index)) yield* spend.write(rowsFor(kind, index))
  yield* TestClock.adjust("1 hour")
  yield* Effect.all(
    hosts.map(({ reconcile }) => reconcile({ which: "all" })),
    { concurrency: 2 }
  )
  return ledger
})

describe("Reconciler schedules", () => {
  it.effect.prop(
    "leave every call once, with its verdict and its cost",
    { kinds: Kinds, steps: Schedule },
    ({ kinds, steps }) =>
      Effect.gen(function* () {
        const ledger = yield* play(kinds, steps)
        const { entries } = yield* ledger.list({})
        assert.sameDeepMembers(
          entries.map(({ costUsd, reason, state, usageUnitId }) => [usageUnitId, state, reason, costUsd]),
          kinds.map((kind, index) => [`call-${index}`, ...verdictOf[kind], costOf(index)])
        )
        const { sums } = yield* ledger.sums({ by: "total" })
        assert.strictEqual(
          sums[0]?.cost,
          kinds.reduce((sum, _, index) => MoneySums.add(sum, Money.fromUsd(costOf(index))), MoneySums.zero)
        )
        // A state is never left for one that was known before, so revisions stay few.
        const all = yield* ledger.list({ revisions: "all" })
        assert.isAtMost(Math.max(...all.entries.map(({ revision }) => revision)), 3)
      }).pipe(Effect.provide(Logger.layer([]))),
    { arbitrary: { runs: 10_000, seed: "reconciler-1" } }
  )
})
