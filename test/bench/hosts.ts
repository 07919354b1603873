/**
 * `./dev bench hosts`: durable runs over three hosts, each with an engine of its own, while one is drained, one is
 * killed and one is cut off from the Temporal server.
 *
 *     --runs N        runs (default 200)
 *     --at-once N     concurrent runs of each host (default 4)
 *     --output DIR    directory for hosts.* (default test/bench/results)
 *
 * Exits with 1 if a run did not end once, was not paid once, or was not delivered once.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Effect, Layer, Logger } from "effect"
import { availableParallelism, loadavg, release } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as CliProcess from "../harness/CliProcess.ts"
import * as DurableTrial from "../harness/durable/DurableTrial.ts"
import * as Report from "./Report.ts"

const { values: asked } = parseArgs({
  options: {
    runs: { type: "string", default: "200" },
    "at-once": { type: "string", default: "4" },
    output: { type: "string" }
  }
})

const number = (text: string, least: number) => Math.max(least, Math.floor(Number(text)) || least)

const beganMs = Date.now()
const loadBefore = loadavg()[0] ?? 0

const options: DurableTrial.TrialOptions = {
  runs: number(asked.runs, 20),
  runsMax: number(asked["at-once"], 1),
  say: (text) => process.stderr.write(`${Math.round((Date.now() - beganMs) / 1000)} s: ${text}\n`)
}

const publish = (trial: DurableTrial.Trial, problems: ReadonlyArray<string>) => {
  const { atOnce, attempts, outcomes, seconds } = trial
  const ends = [...outcomes.values()]
  const rows: ReadonlyArray<readonly [string, string | number]> = [
    ["runs", ends.length],
    ["succeeded", ends.filter(({ status }) => status === "succeeded").length],
    ["lost with their host", ends.filter(({ status }) => status === "lost").length],
    ["attempts", attempts.length],
    ["model calls", attempts.reduce((sum, { spend }) => sum + spend.calls, 0)],
    ["seconds", Math.round(seconds)],
    ...[...atOnce].flatMap(([name, most]): ReadonlyArray<readonly [string, number]> => [
      [`attempts of ${name}`, attempts.filter(({ host }) => host === name).length],
      [`at one time on ${name}, of ${options.runsMax}`, most]
    ])
  ]
  const bars: ReadonlyArray<Report.Bar> = [
    {
      name: "runs that did not end once, were not paid once, or not delivered once",
      value: problems.length,
      atMost: 0
    }
  ]
  const data = {
    takenAt: new Date().toISOString(),
    machine: {
      cores: availableParallelism(),
      kernel: release(),
      node: process.version,
      "load before": Math.round(loadBefore * 10) / 10
    },
    rows: Object.fromEntries(rows),
    bars
  }
  const text = [
    "Each run asks the model twice and changes a file, which becomes a branch and a pull request. Each time when another " +
      "tenth of the runs had ended: host-1 was drained and started again, the worker of host-2 was killed, host-3 was cut " +
      "off from the Temporal server, host-3 was connected again, and host-2 was killed with its keeper.",
    Report.table(["", "total"], rows),
    Report.barTable(bars),
    Report.taken(data)
  ].join("\n\n")
  Report.publish({
    name: "hosts",
    title: "Durable runs over three hosts",
    text,
    data,
    bars,
    directory: asked.output ?? join(import.meta.dirname, "results")
  })
  for (const problem of problems) process.stderr.write(`${problem}\n`)
}

const program = Effect.gen(function* () {
  const trial = yield* DurableTrial.run(options)
  publish(trial, yield* DurableTrial.judge(trial, options))
}).pipe(Effect.scoped, Effect.provide(Layer.merge(CliProcess.layer, Logger.layer([]))))

NodeRuntime.runMain(program)
