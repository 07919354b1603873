/** Contract of every ledger: in memory, SQLite, PostgreSQL. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, type Layer, type Scope, Stream } from "effect"
import { entries as streamed, Ledger } from "../Ledger.ts"
import * as Money from "../Money.ts"
import { runOf, entryOf } from "./LedgerSamples.ts"

const closedAt = "2026-01-31T10:06:00.000Z"

const dollars = (amount: Money.Pico | undefined) => amount && Money.format(amount)

/** Makes ledgers for the tests of a suite. */
export class Ledgers extends Context.Service<
  Ledgers,
  {
    /** An empty ledger. Only one is used at a time. */
    readonly empty: Effect.Effect<Ledger["Service"], unknown, Scope.Scope>
  }
>()("@cogni/sandbox-ledger/testing/Ledgers") {}

export const suite = <E>(name: string, layer: Layer.Layer<Ledgers, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "10 minutes" })(`Ledger (${name})`, (it) => {
    const test = (
      title: string,
      body: (ledger: Ledger["Service"]) => Effect.Effect<void, unknown, Ledger | Scope.Scope>
    ) =>
      it.effect(title, () =>
        Ledgers.use(({ empty }) =>
          Effect.flatMap(empty, (ledger) => Effect.provideService(body(ledger), Ledger, ledger))
        )
      )

    test("opens a run once, and returns it until it is settled", (ledger) =>
      Effect.gen(function* () {
        const run = runOf("run-00000001", { userId: "user-1", agentId: "pi", graphId: "sandbox:pi" })
        yield* ledger.open(run)
        yield* ledger.open(run)
        yield* ledger.open(runOf("run-00000002", { host: "elsewhere" }))
        assert.deepStrictEqual(yield* ledger.openRuns("here"), [run])
        const error = yield* Effect.flip(ledger.open({ ...run, owner: "boot/2/2" }))
        assert.strictEqual(error._tag, "LedgerRunInUse")
        assert.deepStrictEqual(yield* ledger.attempts(run.runId), [run])

        yield* ledger.settle({ run, entries: [], closedAt })
        assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
        yield* ledger.settle({ run, entries: [], closedAt: "2026-02-01T00:00:00.000Z" })
        assert.deepStrictEqual(yield* ledger.attempts(run.runId), [{ ...run, closedAt }])
        yield* ledger.open(run)
        assert.deepStrictEqual(yield* ledger.openRuns("here"), [], "a settled run stays settled")
      }))

    test("names the keys of settled runs until their rows are checked for the last time", (ledger) =>
      Effect.gen(function* () {
        const runKeyHash = "1f".repeat(32)
        const run = runOf("run-00000001")
        const second = runOf("run-00000001", { attempt: 1 })
        const without = runOf("run-00000002")
        const open = runOf("run-00000003")
        for (const one of [second, run, without, open]) yield* ledger.open(one)
        const later = "2026-02-01T00:00:00.000Z"
        assert.deepStrictEqual(yield* ledger.keysDue(later), [])
        yield* ledger.settle({ run: without, entries: [], closedAt })
        yield* ledger.settle({ run, entries: [], closedAt, runKeyHash })
        yield* ledger.settle({ run: second, entries: [], closedAt })
        yield* ledger.settle({ run: second, entries: [], closedAt, runKeyHash: "2e".repeat(32) })
        const keyed = { ...run, closedAt, runKeyHash }
        assert.deepStrictEqual(yield* ledger.attempts(without.runId), [{ ...without, closedAt }])
        assert.deepStrictEqual(yield* ledger.keysDue(closedAt), [], "due before this moment")
        const both = [keyed, { ...second, closedAt, runKeyHash: "2e".repeat(32) }]
        assert.deepStrictEqual(yield* ledger.keysDue(later), both)
        yield* ledger.open(run)
        yield* ledger.keyChecked(second)
        yield* ledger.keyChecked(run, run.expiresAt)
        assert.deepStrictEqual(yield* ledger.keysDue(run.expiresAt), [])
        assert.deepStrictEqual(yield* ledger.keysDue(later), [keyed])
        yield* ledger.keyChecked(run)
        yield* ledger.settle({ run, entries: [], closedAt: later, runKeyHash })
        yield* ledger.keyChecked(run, closedAt)
        assert.deepStrictEqual(yield* ledger.keysDue("2027-01-01T00:00:00.000Z"), [], "never again")
        for (const wrong of ["2026-01-31", ""]) {
          assert.strictEqual((yield* Effect.flip(ledger.keysDue(wrong)))._tag, "LedgerRefused")
          assert.strictEqual((yield* Effect.flip(ledger.keyChecked(run, `${wrong}T`)))._tag, "LedgerRefused")
        }
        const refused = yield* Effect.flip(
          ledger.settle({ run, entries: [], closedAt, runKeyHash: "'; DROP TABLE cogni_ledger_runs; --" })
        )
        assert.strictEqual(refused._tag, "LedgerRefused")
      }))

    test("keeps attempts of a run apart", (ledger) =>
      Effect.gen(function* () {
        const first = runOf("run-00000001")
        const second = runOf("run-00000001", { attempt: 1 })
        yield* ledger.open(second)
        yield* ledger.open(first)
        assert.deepStrictEqual(yield* ledger.attempts("run-00000001"), [first, second])
        yield* ledger.settle({ run: first, entries: [entryOf("run-00000001", "a")], closedAt })
        yield* ledger.settle({
          run: second,
          entries: [entryOf("run-00000001", "a", { attempt: 1 })],
          closedAt
        })
        const { entries } = yield* ledger.list({ runId: first.runId })
        assert.deepStrictEqual(
          entries.map(({ attempt }) => attempt),
          [0, 1]
        )
      }))

    test("stores an entry with all its fields, and amounts to a pico-dollar", (ledger) =>
      Effect.gen(function* () {
        const whole = entryOf("run-00000001", "call/1 '\"\\ \u0000 ü \ud83d\ude00 \ud800", {
          userId: "user\u0000\n",
          graphId: "sandbox:claude-code",
          agentId: "claude-code",
          virtualKeyId: "grant-1",
          runKeyHash: "1f".repeat(32),
          upstreamCallId: "gen-\u0000\ud83d",
          cacheReadTokens: 5,
          cacheWriteTokens: 4,
          cacheWrite1hTokens: 3,
          costUsd: 3.075_000_000_000_000_2e-6,
          reservedUsd: 999_999.123_456_789,
          state: "estimated",
          priceSource: "reservation",
          reason: "call_open",
          detail: "'; DROP TABLE cogni_ledger_entries; --"
        })
        yield* ledger.append([whole])
        const { entries, next } = yield* ledger.list({})
        assert.deepStrictEqual(entries, [{ ...whole, costUsd: 0.000_003_075 }])
        assert.isUndefined(next)
      }))

    test("stores an entry once, whatever is repeated", (ledger) =>
      Effect.gen(function* () {
        const entry = entryOf("run-00000001", "a")
        assert.deepStrictEqual(yield* ledger.append([entry, entry]), { added: 1, existing: [] })
        const again = yield* ledger.append([{ ...entry, costUsd: 9 }, entryOf("run-00000001", "b")])
        assert.deepStrictEqual(again, { added: 1, existing: [entry] })
        const { sums } = yield* ledger.sums({ by: "total" })
        assert.strictEqual(dollars(sums[0]?.cost), "0.00025")
      }))

    test("counts the newest revision of a call, and keeps the others", (ledger) =>
      Effect.gen(function* () {
        const entry = entryOf("run-00000001", "a")
        const corrected = {
          ...entry,
          revision: 1,
          costUsd: 0.5,
          state: "drifted" as const,
          priceSource: "row" as const
        }
        yield* ledger.append([entry])
        yield* ledger.append([corrected])
        assert.deepStrictEqual((yield* ledger.list({})).entries, [corrected])
        assert.deepStrictEqual((yield* ledger.list({ revisions: "all" })).entries, [entry, corrected])
        assert.deepStrictEqual((yield* ledger.list({ states: ["pending"] })).entries, [])
        const { sums } = yield* ledger.sums({ by: "account" })
        assert.deepInclude(sums[0], { group: "account-1", calls: 1, cost: Money.fromUsd(0.5) })
      }))

    test("never counts an unknown cost as 0", (ledger) =>
      Effect.gen(function* () {
        const {
          costUsd: _,
          inputTokens: __,
          outputTokens: ___,
          ...bare
        } = entryOf("run-00000001", "a", {
          priceSource: "none",
          reason: "no_price"
        })
        yield* ledger.append([bare])
        const [alone] = (yield* ledger.sums({ by: "run" })).sums
        assert.notProperty(alone, "cost")
        assert.deepInclude(alone, { calls: 1, callsWithoutCost: 1, callsWithoutTokens: 1 })
        yield* ledger.append([entryOf("run-00000001", "b")])
        const [both] = (yield* ledger.sums({ by: "run" })).sums
        assert.deepInclude(both, { calls: 2, callsWithoutCost: 1, callsWithoutTokens: 1, inputTokens: 100 })
        assert.strictEqual(dollars(both?.cost), "0.000125")
      }))

    test("refuses entries that break a rule, and stores none of them", (ledger) =>
      Effect.gen(function* () {
        const good = entryOf("run-00000001", "a")
        const { costUsd: _, ...unpriced } = good
        for (const wrong of [
          { ...good, costUsd: -1 },
          { ...good, costUsd: Number.NaN },
          { ...good, inputTokens: 1.5 },
          { ...good, at: "2026-01-31 10:00:00" },
          { ...good, priceSource: "none" as const },
          unpriced,
          { ...good, usageUnitId: "" }
        ]) {
          const error = yield* Effect.flip(ledger.append([entryOf("run-00000001", "z"), wrong]))
          assert.strictEqual(error._tag, "LedgerRefused")
        }
        assert.deepStrictEqual((yield* ledger.list({})).entries, [])
      }))

    test("refuses to settle a run that it does not know", (ledger) =>
      Effect.gen(function* () {
        const entries = [entryOf("run-00000001", "a")]
        const error = yield* Effect.flip(ledger.settle({ run: runOf("run-00000001"), entries, closedAt }))
        assert.strictEqual(error._tag, "LedgerRunUnknown")
        assert.deepStrictEqual((yield* ledger.list({})).entries, [])
      }))

    test("settles a run of 2000 calls at once, and lists them page by page", (ledger) =>
      Effect.gen(function* () {
        const run = runOf("run-00000001")
        yield* ledger.open(run)
        const entries = Array.from({ length: 2000 }, (_, index) =>
          entryOf("run-00000001", `call-${String(index).padStart(4, "0")}`, {
            at: new Date(Date.parse(run.openedAt) + Math.floor(index / 3)).toISOString(),
            costUsd: 0.1
          })
        )
        assert.strictEqual((yield* ledger.settle({ run, entries, closedAt })).added, 2000)
        const first = yield* ledger.list({}, { limit: 7 })
        assert.deepStrictEqual(first.entries, entries.slice(0, 7))
        const second = yield* ledger.list({}, { limit: 7, after: first.next! })
        assert.deepStrictEqual(second.entries, entries.slice(7, 14))
        const all = yield* Stream.runCollect(streamed({ runId: run.runId }))
        assert.deepStrictEqual([...all], entries)
        const { sums } = yield* ledger.sums({ by: "total" })
        assert.strictEqual(dollars(sums[0]?.cost), "200")
      }))

    test("refuses a cursor that no page returned", (ledger) =>
      Effect.gen(function* () {
        for (const after of ["", "nonsense", "W10"]) {
          const error = yield* Effect.flip(ledger.list({}, { after }))
          assert.strictEqual(error._tag, "LedgerRefused")
        }
      }))

    test("filters by every field, and by time: from a moment, before another", (ledger) =>
      Effect.gen(function* () {
        const a = entryOf("run-00000001", "a", { userId: "u", agentId: "pi", graphId: "sandbox:pi" })
        const b = entryOf("run-00000002", "b", {
          at: "2026-02-01T00:00:00.000Z",
          billingAccountId: "account-2",
          model: "claude",
          upstream: "openrouter",
          virtualKeyId: "grant-2",
          runKeyHash: "2e".repeat(32),
          state: "matched"
        })
        yield* ledger.append([a, b])
        for (const [filter, expected] of [
          [{}, [a, b]],
          [{ runId: a.runId }, [a]],
          [{ billingAccountId: "account-2" }, [b]],
          [{ userId: "u" }, [a]],
          [{ graphId: "sandbox:pi" }, [a]],
          [{ agentId: "pi" }, [a]],
          [{ virtualKeyId: "grant-2" }, [b]],
          [{ runKeyHash: "2e".repeat(32) }, [b]],
          [{ runKeyHash: "3d".repeat(32) }, []],
          [{ model: "claude" }, [b]],
          [{ upstream: "openrouter" }, [b]],
          [{ upstream: "anthropic" }, []],
          [{ usageUnitIds: ["b", "c"] }, [b]],
          [{ usageUnitIds: [] }, []],
          [{ states: ["matched", "missing"] as const }, [b]],
          [{ states: [] }, []],
          [{ from: b.at }, [b]],
          [{ to: b.at }, [a]],
          [{ from: a.at, to: a.at }, []],
          [{ billingAccountId: "account-2", model: "gpt-5" }, []]
        ] as const) {
          assert.deepStrictEqual((yield* ledger.list(filter)).entries, [...expected], JSON.stringify(filter))
        }
      }))

    test("sums by account, user, graph, agent, model, upstream, run and day, the most expensive first", (ledger) =>
      Effect.gen(function* () {
        yield* ledger.append([
          entryOf("run-00000001", "a", { costUsd: 0.1, userId: "u", agentId: "pi", graphId: "g" }),
          entryOf("run-00000001", "b", { costUsd: 0.2, state: "estimated", priceSource: "reservation" }),
          entryOf("run-00000002", "c", {
            costUsd: 5,
            billingAccountId: "account-2",
            model: "claude",
            upstream: "openrouter",
            at: "2026-02-01T23:59:59.999Z",
            state: "matched"
          })
        ])
        const groups = (by: "account" | "user" | "graph" | "agent" | "model" | "upstream" | "run" | "day") =>
          Effect.map(ledger.sums({ by }), ({ sums }) =>
            sums.map(({ calls, cost, group }) => [group, calls, dollars(cost)])
          )
        const both = (first: string, second: string) => [
          [second, 1, "5"],
          [first, 2, "0.3"]
        ]
        assert.deepStrictEqual(yield* groups("account"), both("account-1", "account-2"))
        assert.deepStrictEqual(yield* groups("model"), both("gpt-5", "claude"))
        assert.deepStrictEqual(yield* groups("upstream"), both("litellm", "openrouter"))
        assert.deepStrictEqual(yield* groups("run"), both("run-00000001", "run-00000002"))
        assert.deepStrictEqual(yield* groups("day"), both("2026-01-31", "2026-02-01"))
        for (const [by, name] of [
          ["user", "u"],
          ["agent", "pi"],
          ["graph", "g"]
        ] as const)
          assert.deepStrictEqual(yield* groups(by), [
            [undefined, 2, "5.2"],
            [name, 1, "0.1"]
          ])
        const { sums, truncated } = yield* ledger.sums({ by: "account", limit: 1 })
        assert.deepStrictEqual([sums.length, truncated], [1, true])
        const [total] = (yield* ledger.sums({ by: "total", filter: { billingAccountId: "account-1" } })).sums
        assert.strictEqual(dollars(total?.estimatedCost), "0.2")
        assert.deepStrictEqual(total?.states, {
          pending: 1,
          matched: 0,
          drifted: 0,
          missing: 0,
          estimated: 1
        })
        assert.deepStrictEqual(yield* ledger.sums({ by: "total", filter: { model: "none" } }), {
          sums: [],
          truncated: false
        })
      }))
  })
