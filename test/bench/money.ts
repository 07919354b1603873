/**
 * `./dev bench money`: the cost of every call, in three records: the audit, the ledger, and the rows of a real LiteLLM.
 * Then schedules of crashes, retries and late rows for sealed runs, after which each call must be charged once.
 *
 *     --runs N        runs (default 200; 0: only the schedules)
 *     --sealed N      runs in sealed containers (default 20)
 *     --calls N       maximum calls of a run (default 50; at least 5)
 *     --at-once N     runs at the same time (default 8)
 *     --seed TEXT     seed of the plan (default money-1)
 *     --no-restart    LiteLLM does not restart in the middle
 *     --schedules N   schedules (default 50; 0: none)
 *     --output DIR    directory for money.* and schedules.* (default test/bench/results)
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
import * as CostSchedule from "../harness/billing/CostSchedule.ts"
import * as LiteLlmDatabase from "../harness/LiteLlmDatabase.ts"
import * as Report from "./Report.ts"

const { values: options } = parseArgs({
  options: {
    runs: { type: "string", default: "200" },
    sealed: { type: "string", default: "20" },
    calls: { type: "string", default: "50" },
    "at-once": { type: "string", default: "8" },
    seed: { type: "string", default: "money-1" },
    schedules: { type: "string", default: "50" },
    "no-restart": { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const number = (text: string, least: number) => Math.max(least, Math.floor(Number(text)) || least)

const planned: BillingPlan.PlanOptions = {
  seed: options.seed,
  runs: number(options.runs, 0),
  sealed: number(options.sealed, 0),
  callsMin: 5,
  callsMax: number(options.calls, 5)
}

const directory = options.output ?? join(import.meta.dirname, "results")
const beganMs = Date.now()
const loadBefore = loadavg()[0] ?? 0

const secondsSince = (ms: number) => Math.round((Date.now() - ms) / 1000)

const say = (text: string) => process.stderr.write(`${secondsSince(beganMs)} s: ${text}\n`)

const machineOf = (startedMs: number) => ({
  takenAt: new Date().toISOString(),
  machine: {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    "load before": Math.round(loadBefore * 10) / 10,
    seconds: secondsSince(startedMs)
  }
})

const problemsShown = 40

const showProblems = (problems: ReadonlyArray<string>): void => {
  for (const problem of problems.slice(0, problemsShown)) process.stderr.write(`${problem}\n`)
  if (problems.length > problemsShown) process.stderr.write(`… and ${problems.length - problemsShown} more\n`)
}

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

const publishTrial = (
  plan: ReadonlyArray<BillingPlan.PlannedRun>,
  { byAccount, byFate, byPath, keysLeft, problems, reasons, refused, total }: BillingTrial.Trial
) => {
  const bars: ReadonlyArray<Report.Bar> = [
    { name: "differences that no entry explains", value: problems.length, atMost: 0 },
    { name: "keys left in LiteLLM", value: keysLeft.length, atMost: 0 }
  ]
  const data = {
    ...machineOf(beganMs),
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
    Report.table(
      ["state, reason", "calls"],
      reasons.map(([name, calls]) => [name, calls])
    ),
    Report.barTable(bars),
    Report.taken(data)
  ].join("\n\n")
  Report.publish({
    name: "money",
    title: "The cost of every call, in three records",
    text,
    data,
    bars,
    directory
  })
  showProblems([...problems, ...keysLeft.map((alias) => `left: ${alias}`)])
}

const trial = Effect.gen(function* () {
  const plan = yield* BillingPlan.make(planned)
  const lite = yield* LiteLlmDatabase.make({ script: BillingModel.script })
  say("LiteLLM is ready")
  const concurrency = number(options["at-once"], 1)
  const restarts = !options["no-restart"]
  publishTrial(plan, yield* BillingTrial.play({ lite, plan, concurrency, restarts, say }))
}).pipe(Effect.scoped)

const schedules = Effect.gen(function* () {
  const startedMs = Date.now()
  const seeds = Array.from({ length: number(options.schedules, 0) }, (_, index) => `${options.seed}-${index}`)
  const played = yield* Effect.forEach(seeds, (seed, index) =>
    Effect.gen(function* () {
      const schedule = yield* CostSchedule.make(seed)
      const result = yield* CostSchedule.play(schedule)
      if ((index + 1) % 5 === 0) say(`${index + 1} of ${seeds.length} schedules`)
      return { schedule, result, problems: result.problems.map((problem) => `schedule ${seed}: ${problem}`) }
    })
  )
  const problems = played.flatMap((one) => one.problems)
  const count = (some: (one: (typeof played)[number]) => number) =>
    played.reduce((sum, one) => sum + some(one), 0)
  const rows: ReadonlyArray<readonly [string, number]> = [
    ["schedules", played.length],
    [
      "schedules that kill their host",
      count(({ schedule }) => (schedule.hostKilledAt === undefined ? 0 : 1))
    ],
    [
      "recoveries, reconciliations and kills of containers meanwhile",
      count(({ schedule }) => schedule.disturbances.length)
    ],
    ["calls that the upstream received", count(({ result }) => result.received)],
    ["calls in the ledger", count(({ result }) => result.total.calls)],
    ["matched", count(({ result }) => result.total.matched)],
    ["drifted: two rows", count(({ result }) => result.total.drifted)],
    ["missing: never received", count(({ result }) => result.total.missing)],
    ["calls that were charged as reserved at first", count(({ result }) => result.total.estimatedFirst)]
  ]
  const bars: ReadonlyArray<Report.Bar> = [
    { name: "calls that are charged twice, lost or not explained", value: problems.length, atMost: 0 }
  ]
  const data = { ...machineOf(startedMs), seed: options.seed, rows: Object.fromEntries(rows), bars }
  const text = [
    "Two runs in sealed containers for each schedule, whose upstream counts the calls that it receives.",
    Report.table(["", "total"], rows),
    Report.barTable(bars),
    Report.taken(data)
  ].join("\n\n")
  Report.publish({
    name: "schedules",
    title: "Schedules of crashes, retries and late rows",
    text,
    data,
    bars,
    directory
  })
  showProblems(problems)
})

const program = Effect.gen(function* () {
  if (planned.runs > 0) yield* trial
  if (number(options.schedules, 0) > 0) yield* schedules
}).pipe(Effect.provide(Logger.layer([])))

NodeRuntime.runMain(program)
