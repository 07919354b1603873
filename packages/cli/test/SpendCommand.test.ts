/** `spend` on the state directory of runs: sums, explanations, formats, and names that agents and callers chose. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { AccountReservations } from "@cogni/sandbox-ledger/AccountReservations"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as LedgerSamples from "../../ledger/src/testing/LedgerSamples.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Result } from "effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Cli from "../src/Cli.ts"
import * as DatabaseSettings from "../src/DatabaseSettings.ts"
import * as Output from "../src/Output.ts"
import * as Records from "../src/Records.ts"
import type { Settings } from "../src/Settings.ts"
import { record, runId } from "./RunResults.ts"

const other = RunId.make("run-other-00001")

const settingsOf = (directory: string) =>
  ({
    stateDirectory: directory,
    database: Result.succeed(DatabaseSettings.besideRecords(directory)),
    prices: undefined
  }) as unknown as Settings["Service"]

/** A state directory whose ledger has two runs. */
const state = Effect.fnUntraced(function* (account = "account-1", limits?: object) {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "spend-command-"))),
    (made) => Effect.sync(() => fs.rmSync(made, { recursive: true, force: true }))
  )
  yield* Effect.gen(function* () {
    const ledger = yield* Ledger
    const store = yield* RunStore
    for (const id of [runId, other]) {
      yield* Effect.scoped(
        Effect.flatMap(store.open(id, record().spec), ({ owner, save }) =>
          save({ ...record({ outcome: { status: "closed" } }), runId: id, owner })
        )
      )
      yield* ledger.open(LedgerSamples.runOf(id, { host: HostOwner.machineName() }))
    }
    yield* ledger.open(LedgerSamples.runOf("run-forgotten-01"))
    yield* ledger.settle({
      run: LedgerSamples.runOf("run-forgotten-01"),
      entries: [],
      closedAt: "2026-01-31T12:00:00.000Z"
    })
    const run = LedgerSamples.runOf(runId)
    const { costUsd: _, ...unpriced } = LedgerSamples.entryOf(runId, "call-3", {
      billingAccountId: account,
      priceSource: "none",
      reason: "no_price",
      detail: "the host has no price\u001b[2J\nfor the model"
    })
    yield* ledger.settle({
      run,
      closedAt: run.expiresAt,
      entries: [
        LedgerSamples.entryOf(runId, "call-1", { billingAccountId: account, costUsd: 0.1, reservedUsd: 2 }),
        LedgerSamples.entryOf(runId, "call-2", {
          billingAccountId: account,
          costUsd: 0.2,
          state: "estimated",
          priceSource: "reservation",
          reason: "call_open"
        }),
        unpriced
      ]
    })
    yield* ledger.settle({
      run: LedgerSamples.runOf(other),
      closedAt: run.expiresAt,
      entries: [
        LedgerSamples.entryOf(other, "call-9", { at: "2026-02-01T00:00:00.000Z", costUsd: 5, model: "m2" })
      ]
    })
    if (limits === undefined) return
    const { reserve } = yield* AccountReservations
    const leaseUntil = "2999-01-01T00:00:00.000Z"
    yield* reserve(LedgerSamples.reservationOf("run-reserving-01", 0.5, {}, { leaseUntil }))
  }).pipe(Effect.provide(Records.store(settingsOf(directory))))
  const file = path.join(directory, "limits.json")
  if (limits !== undefined) fs.writeFileSync(file, JSON.stringify(limits))
  const environment = {
    COGNI_STATE_DIR: directory,
    ...(limits === undefined ? {} : { COGNI_ACCOUNT_LIMITS_FILE: file })
  }
  return Effect.fnUntraced(function* (...argv: ReadonlyArray<string>) {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({ argv, environment }).pipe(
      Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
    )
    return { ...memory.said, code }
  })
})

describe("SpendCommand", () => {
  it.live("sums exactly by account, and names what is uncertain", () =>
    Effect.gen(function* () {
      const cli = yield* state("acct-2")
      const { code, stdout } = yield* cli("spend")
      assert.strictEqual(code, 0)
      assert.deepStrictEqual(
        stdout.split("\n").map((line) => line.split(/ {2,}/u)),
        [
          ["ACCOUNT", "CALLS", "INPUT", "OUTPUT", "COST", "UNCERTAIN"],
          ["account-1", "1", "100", "10", "$5"],
          ["acct-2", "3", "300", "30", "$0.3", "1 call of unknown cost, $0.2 estimated"],
          ["total", "4", "400", "40", "$5.3", "1 call of unknown cost, $0.2 estimated"],
          [""]
        ]
      )
    })
  )

  it.live("shows what is spent, reserved and left of the limits of accounts", () =>
    Effect.gen(function* () {
      const limits = {
        default: { dayUsdMax: 2, concurrentRunsMax: 3 },
        accounts: { quiet: { monthUsdMax: 10, callsPerMinuteMax: 60 } }
      }
      const cli = yield* state("acct-2", limits)
      const { code, stdout } = yield* cli("spend")
      assert.strictEqual(code, 0)
      const lines = stdout.split("\n").map((line) => line.split(/ {2,}/u))
      assert.deepStrictEqual(lines.slice(5), [
        ["ACCOUNT", "RUNS", "TODAY (UTC)", "THIS MONTH", "CALLS/MINUTE"],
        ["account-1", "1 of 3", "$0 of $2, $0.5 reserved", "$0, $0.5 reserved", "-"],
        ["acct-2", "0 of 3", "$0 of $2", "$0", "-"],
        ["quiet", "0", "$0", "$0 of $10", "at most 60"],
        [""]
      ])
      const json = JSON.parse((yield* cli("spend", "--account", "account-1", "-o", "json")).stdout)
      assert.deepStrictEqual(json.limits, [
        {
          account: "account-1",
          runs: 1,
          concurrentRunsMax: 3,
          callsPerMinuteMax: null,
          day: { limitUsd: 2, spentUsd: 0, reservedUsd: 0.5, leftUsd: 1.5 },
          month: { limitUsd: null, spentUsd: 0, reservedUsd: 0.5, leftUsd: null }
        }
      ])
      assert.notInclude((yield* cli("spend", "--by", "day")).stdout, "TODAY")
    })
  )

  it.live("refuses limits that cannot be read, and needs them for accounts alone", () =>
    Effect.gen(function* () {
      const cli = yield* state("acct-2", { accounts: { a: { dayUsdMax: "much" } } })
      const { code, stderr } = yield* cli("spend")
      assert.strictEqual(code, 78)
      assert.include(stderr, "COGNI_ACCOUNT_LIMITS_FILE")
      assert.strictEqual((yield* cli("spend", "--by", "day")).code, 0)
    })
  )

  it.live("filters by day, where the last day is included, and refuses a date that does not exist", () =>
    Effect.gen(function* () {
      const cli = yield* state()
      const days = (...argv: ReadonlyArray<string>) =>
        Effect.map(cli("spend", "--by", "day", "-o", "json", ...argv), ({ stdout }) =>
          (JSON.parse(stdout) as { sums: ReadonlyArray<{ group: string }> }).sums.map(({ group }) => group)
        )
      assert.deepStrictEqual(yield* days(), ["2026-02-01", "2026-01-31"])
      assert.deepStrictEqual(yield* days("--to", "2026-01-31"), ["2026-01-31"])
      assert.deepStrictEqual(yield* days("--to", "2026-02-01"), ["2026-02-01", "2026-01-31"])
      assert.deepStrictEqual(yield* days("--from", "2026-02-01"), ["2026-02-01"])
      assert.deepStrictEqual(yield* days("--to", "2026-02-01T00:00:00Z"), ["2026-01-31"])
      assert.deepStrictEqual(yield* days("--model", "m2"), ["2026-02-01"])
      const wrong = yield* cli("spend", "--from", "2026-02-30")
      assert.strictEqual(wrong.code, 64)
      assert.include(wrong.stderr, "a date such as 2026-01-31")
    })
  )

  it.live("writes CSV whose cells no spreadsheet executes, with exact amounts and empty unknown costs", () =>
    Effect.gen(function* () {
      for (const [account, cell] of [
        [`=HYPERLINK("http://x","a")`, `"'=HYPERLINK(""http://x"",""a"")"`],
        ["+1", "'+1"],
        ["-1", "'-1"],
        ["@x", "'@x"],
        ["a,b", `"a,b"`]
      ] as const) {
        const cli = yield* state(account)
        const { stdout } = yield* cli("spend", "-o", "csv")
        const [, , line] = stdout.split("\n")
        assert.strictEqual(line, `${cell},3,1,300,30,0,0,0.3,0.2,2,0,0,0,1`)
      }
    })
  )

  it.live("explains each call of a run: reserved, charged, source, state and reason, on one line", () =>
    Effect.gen(function* () {
      const cli = yield* state()
      const { code, stdout } = yield* cli("spend", "explain", runId)
      assert.strictEqual(code, 0)
      const [head, , first, second, third, total] = stdout.split("\n")
      assert.include(head, `${runId}: account account-1`)
      assert.match(first!, /^call-1 .+ \$2 +\$0\.1 +upstream +pending$/u)
      assert.match(second!, /^call-2 .+ - +\$0\.2 +reservation +estimated +call_open$/u)
      assert.match(
        third!,
        /^call-3 .+ unknown +none +pending +no_price: the host has no price\^\[\[2J for the model$/u
      )
      assert.strictEqual(total, "total: $0.3 (1 call of unknown cost, $0.2 estimated)")
      const json = JSON.parse((yield* cli("spend", "explain", runId, "-o", "json")).stdout)
      assert.strictEqual(json.calls.length, 3)
      assert.deepInclude(json.cost, { costUsd: 0.3, callsWithoutCost: 1, isSettled: true })
      const forgotten = yield* cli("spend", "explain", "run-forgotten-01")
      assert.deepStrictEqual([forgotten.code, forgotten.stdout.split("\n")[1]], [0, "no call to a model"])
      const inspected = JSON.parse((yield* cli("inspect", runId, "-o", "json")).stdout)
      assert.deepStrictEqual(inspected.cost, json.cost)
    })
  )

  it.live("says so if nothing is in the ledger, and creates no database for that", () =>
    Effect.gen(function* () {
      const directory = path.join(os.tmpdir(), `spend-none-${process.pid}`)
      const memory = Output.makeMemory()
      const code = yield* Cli.main({ argv: ["spend"], environment: { COGNI_STATE_DIR: directory } }).pipe(
        Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
      )
      assert.deepStrictEqual([code, memory.said.stdout], [0, ""])
      assert.include(memory.said.stderr, "no call to a model is in the ledger")
      assert.isFalse(fs.existsSync(directory))
    })
  )
})
