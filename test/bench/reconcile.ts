/**
 * `./dev bench reconcile`: 10,000 calls of 200 runs, compared with the rows of a LiteLLM that only answers.
 *
 *     --calls N       calls (default 10000)
 *     --samples N     rounds for each way (default 3)
 *     --output DIR    directory for reconcile.json and reconcile.md (default test/bench/results)
 *
 * The ledger is in SQLite. `keys` finds the rows by the key of each run, `accounts` by account and time. Both include
 * the requests, and the storage of one further entry for each call. The double of LiteLLM filters its rows in memory,
 * so a real one takes longer for its own queries. Needs no Docker.
 */
import { NodeRuntime } from "@effect/platform-node"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as Ledger from "@cogni/sandbox-ledger/Ledger"
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import * as LiteLlmSpendRows from "@cogni/sandbox-proxy/LiteLlmSpendRows"
import * as Database from "@cogni/sandbox-sql/Database"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import { Effect, Layer, Redacted } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as LiteLlmRows from "../harness/LiteLlmRows.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: { calls: { type: "string" }, samples: { type: "string" }, output: { type: "string" } }
})

const calls = Math.max(1, Number(options.calls ?? 10_000) || 10_000)
const samples = Math.max(1, Number(options.samples ?? 3) || 3)
const callsOfRun = 50

const directory = mkdtempSync(join(tmpdir(), "cogni-bench-"))
const loadBefore = loadavg()[0] ?? 0

/** An hour ago, so that every row is due. */
const beganMs = Date.now() - 3_600_000
const recordedAt = new Date(beganMs + 900_000).toISOString()

const keyOf = (run: number): string => run.toString(16).padStart(64, "0")
const runIdOf = (run: number) => RunId.make(`run-${String(run).padStart(8, "0")}`)
const momentOf = (call: number): string => new Date(beganMs + call * 60).toISOString()

const entryOf = (call: number, hasKey: boolean): LedgerEntry => {
  const run = Math.floor(call / callsOfRun)
  return {
    runId: runIdOf(run),
    attempt: 0,
    usageUnitId: `call-${call}`,
    revision: 0,
    at: momentOf(call),
    recordedAt,
    billingAccountId: `account-${run % 10}`,
    ...(hasKey ? { runKeyHash: keyOf(run) } : {}),
    upstream: "litellm",
    model: "gpt-5",
    inputTokens: 100,
    outputTokens: 10,
    costUsd: 0.000_125,
    currency: "USD",
    priceSource: "upstream",
    streamed: false,
    outcome: "completed",
    state: "pending"
  }
}

const rowOf = (call: number): LiteLlmRows.Row => {
  const run = Math.floor(call / callsOfRun)
  return LiteLlmRows.row(`call-${call}`, {
    api_key: keyOf(run),
    end_user: `account-${run % 10}`,
    startTime: momentOf(call),
    metadata: { spend_logs_metadata: { run_id: runIdOf(run), attempt: 0 } }
  })
}

/** Fills a ledger and reconciles it once. Returns the milliseconds and the requests of the second part. */
const once = Effect.fnUntraced(function* (double: LiteLlmRows.LiteLlmRows, hasKey: boolean, round: number) {
  const ledger = yield* Ledger.Ledger
  const entries = Array.from({ length: calls }, (_, call) => entryOf(call, hasKey))
  for (const some of Map.groupBy(entries, ({ runId }) => runId).values()) {
    const { attempt, billingAccountId, model, runId, upstream } = some[0]!
    yield* ledger.open({
      attempt,
      billingAccountId,
      model,
      runId,
      upstream,
      host: "here",
      owner: "boot/1/1",
      openedAt: some[0]!.at,
      expiresAt: recordedAt
    })
    yield* ledger.settle({ run: { attempt, runId }, entries: some, closedAt: recordedAt })
  }
  const reconciler = yield* Reconciler.Reconciler
  const asked = double.requests.length
  const startedMs = performance.now()
  const report = yield* reconciler.reconcile()
  const millis = performance.now() - startedMs
  if (report.recorded.matched !== calls || report.unresolved > 0)
    return yield* Effect.die(new Error(`only ${report.recorded.matched} of ${calls} calls were matched`))
  process.stderr.write(`${hasKey ? "keys" : "accounts"} ${round + 1}: ${Math.round(millis)} ms\n`)
  return { millis, requests: double.requests.length - asked }
})

const measured = (double: LiteLlmRows.LiteLlmRows, hasKey: boolean, round: number) =>
  once(double, hasKey, round).pipe(
    Effect.provide(
      Reconciler.layer().pipe(
        Layer.provideMerge(
          Layer.mergeAll(
            SqlLedger.layer,
            LiteLlmSpendRows.layer({ url: double.url, key: Redacted.make(LiteLlmRows.adminKey) })
          )
        ),
        Layer.provide(Database.layer({ _tag: "Sqlite", path: join(directory, `${hasKey}-${round}.sqlite`) }))
      )
    )
  )

const measure = Effect.gen(function* () {
  const double = yield* LiteLlmRows.acquire
  for (let call = 0; call < calls; call++) double.rows.push(rowOf(call))
  const results: Array<{ readonly hasKey: boolean; readonly millis: number; readonly requests: number }> = []
  for (const hasKey of [true, false])
    for (let round = 0; round < samples; round++)
      results.push({ hasKey, ...(yield* measured(double, hasKey, round)) })
  const ways = [true, false].map((hasKey) => results.filter((result) => result.hasKey === hasKey))
  const names = ["by the key of each run", "by account and time"]
  const rows = ways.map((way, index) => ({
    name: names[index]!,
    requests: way[0]?.requests ?? 0,
    ...Samples.summarize(way.map(({ millis }) => millis))
  }))
  const bars: ReadonlyArray<Report.Bar> = rows.map(({ name, p50 }) => ({
    name: `${calls} calls, ${name}, in seconds`,
    value: Math.round(p50 / 10) / 100,
    atMost: 10
  }))
  const data = {
    takenAt: new Date().toISOString(),
    machine: {
      cores: availableParallelism(),
      kernel: release(),
      node: process.version,
      "load before": Math.round(loadBefore * 10) / 10,
      samples
    },
    calls,
    rows,
    bars
  }
  const text = [
    `${calls} calls of ${Math.ceil(calls / callsOfRun)} runs, from a ledger in SQLite. The rows come from a double of LiteLLM.`,
    Report.table(
      ["ms", "n", "min", "p50", "requests"],
      rows.map(({ count, min, name, p50, requests }) => [name, count, min, p50, requests])
    ),
    Report.barTable(bars),
    Report.taken(data)
  ].join("\n\n")
  Report.publish({
    name: "reconcile",
    title: "Reconciliation with the rows of an upstream, measured",
    text,
    data,
    bars,
    directory: options.output ?? join(import.meta.dirname, "results")
  })
}).pipe(Effect.scoped)

NodeRuntime.runMain(
  Effect.ensuring(
    measure,
    Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
  )
)
