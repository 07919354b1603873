/**
 * `./dev bench money`: the cost of every call, in three records: the audit, the ledger, and the rows of a real LiteLLM.
 *
 *     --runs N        runs (default 200)
 *     --sealed N      runs in sealed containers (default 20)
 *     --calls N       maximum calls of a run (default 50; at least 5)
 *     --at-once N     runs at the same time (default 8)
 *     --seed TEXT     seed of the plan (default money-1)
 *     --no-restart    LiteLLM does not restart in the middle
 *     --output DIR    directory for money.json and money.md (default test/bench/results)
 *
 * Exits with 1 if a record differs from the others and no entry says why, or if a key is left.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Effect, Logger } from "effect"
import { availableParallelism, loadavg, release } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as BillingModel from "../harness/billing/BillingModel.ts"
import * as BillingPlan from "../harness/billing/BillingPlan.ts"
import type { Line } from "../harness/billing/BillingProof.ts"
import * as BillingTrial from "../harness/billing/BillingTrial.ts"
import * as LiteLlmDatabase from "../harness/LiteLlmDatabase.ts"
import * as Report from "./Report.ts"

const { values: options } = parseArgs({
  options: {
    runs: { type: "string", default: "200" },
    sealed: { type: "string", default: "20" },
    calls: { type: "string", default: "50" },
    "at-once": { type: "string", default: "8" },
    seed: { type: "string", default: "money-1" },
    "no-restart": { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const number = (text: string, least: number) => Math.max(least, Math.floor(Number(text)) || least)

const planned: BillingPlan.PlanOptions = {
  seed: options.seed,
  runs: number(options.runs, 1),
  sealed: number(options.sealed, 0),
  callsMin: 5,
  callsMax: number(options.calls, 5)
}

const beganMs = Date.now()
const loadBefore = loadavg()[0] ?? 0

const say = (text: string) =>
  process.stderr.write(`${Math.round((Date.now() - beganMs) / 1000)} s: ${text}\n`)

const tableOf = (name: string, lines: ReadonlyArray<Line>) =>
  Report.table(
    [
      name,
      "calls",
      "matched",
      "drifted",
      "missing",
      "estimated",
      "estimated at first",
      "sum of the ledger, USD",
      "sum of the rows, USD",
      "explained, USD"
    ],
    lines.map((line) => [
      line.name,
      line.calls,
      line.matched,
      line.drifted,
      line.missing,
      line.estimated + line.pending,
      line.estimatedFirst,
      line.oursUsd,
      line.rowsUsd,
      line.explainedUsd
    ])
  )

const problemsShown = 40

const publish = (
  plan: ReadonlyArray<BillingPlan.PlannedRun>,
  { byAccount, byFate, byPath, keysLeft, problems, reasons, refused, total }: BillingTrial.Trial
) => {
  const bars: ReadonlyArray<Report.Bar> = [
    { name: "calls that differ without an entry that says why", value: problems.length, atMost: 0 },
    { name: "keys left in LiteLLM", value: keysLeft.length, atMost: 0 }
  ]
  const seconds = Math.round((Date.now() - beganMs) / 1000)
  const data = {
    takenAt: new Date().toISOString(),
    machine: {
      cores: availableParallelism(),
      kernel: release(),
      node: process.version,
      "load before": Math.round(loadBefore * 10) / 10,
      seconds
    },
    planned,
    refused,
    byPath,
    byFate,
    byAccount,
    total,
    reasons: Object.fromEntries(reasons),
    bars
  }
  const callsPlanned = plan.reduce((sum, { steps }) => sum + steps.flat().length, 0)
  const text = [
    `${planned.runs} runs, ${planned.sealed} of them in sealed containers, with ${callsPlanned} planned calls (seed ` +
      `${planned.seed}). ${options["no-restart"] ? "LiteLLM did not restart." : "LiteLLM restarted in the middle."} ` +
      `${refused} beginnings of runs were refused meanwhile, and repeated.`,
    tableOf("path", [...byPath, total]),
    tableOf("fate of the run", byFate),
    tableOf("account", byAccount),
    Report.table(["state, reason", "calls"], reasons.map(([name, calls]) => [name, calls])),
    Report.barTable(bars),
    Report.taken(data)
  ].join("\n\n")
  Report.publish({
    name: "money",
    title: "The cost of every call, in three records",
    text,
    data,
    bars,
    directory: options.output ?? join(import.meta.dirname, "results")
  })
  for (const problem of problems.slice(0, problemsShown)) process.stderr.write(`${problem}\n`)
  if (problems.length > problemsShown)
    process.stderr.write(`… and ${problems.length - problemsShown} more\n`)
  for (const alias of keysLeft) process.stderr.write(`left: ${alias}\n`)
}

const program = Effect.gen(function* () {
  const plan = yield* BillingPlan.make(planned)
  const lite = yield* LiteLlmDatabase.make({ script: BillingModel.script })
  say("LiteLLM is ready")
  const trial = yield* BillingTrial.play({
    lite,
    plan,
    concurrency: number(options["at-once"], 1),
    restarts: !options["no-restart"],
    say
  })
  publish(plan, trial)
}).pipe(Effect.scoped, Effect.provide(Logger.layer([])))

NodeRuntime.runMain(program)
