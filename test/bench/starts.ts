/**
 * `./dev bench starts`: how soon a run starts, how soon its agent calls a model, and how many runs one proxy carries.
 *
 *     --quick         as `--quick` of each, with one round of the agents, to check that it works
 *     --output DIR    directory for the results (default test/bench/results; none with --quick)
 *
 * It measures `bench pool`, `bench agents` and `bench sharing` on one machine, one after the other, and puts their bars
 * into one table. Exits with 1 if a bar is missed.
 */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as Report from "./Report.ts"

const { values: options } = parseArgs({
  options: { quick: { type: "boolean", default: false }, output: { type: "string" } }
})

type Measured = Pick<Report.Report, "bars" | "machine" | "takenAt">

const quick: Readonly<Record<string, ReadonlyArray<string>>> = {
  pool: ["--quick"],
  agents: ["--rounds", "1"],
  sharing: ["--quick"]
}

/** Runs a benchmark, and returns its results. A missed bar makes it exit with 1, and is in its results. */
const measure = async (name: string, directory: string): Promise<Measured> => {
  process.stderr.write(`bench ${name}\n`)
  const child = spawn(
    process.execPath,
    [
      ...process.execArgv,
      join(import.meta.dirname, `${name}.ts`),
      "--output",
      directory,
      ...(options.quick ? quick[name]! : [])
    ],
    { stdio: "inherit" }
  )
  // Otherwise the benchmark would go on alone.
  const signals = ["SIGINT", "SIGTERM"] as const
  const pass = (signal: NodeJS.Signals) => void child.kill(signal)
  for (const signal of signals) process.once(signal, pass)
  const [status, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null]
  for (const one of signals) process.off(one, pass)
  if (status !== 0 && status !== 1) throw new Error(`bench ${name} ended with ${status ?? signal}`)
  try {
    return JSON.parse(readFileSync(join(directory, `${name}.json`), "utf8")) as Measured
  } catch (cause) {
    throw new Error(`bench ${name} ended with ${status}, and has no results`, { cause })
  }
}

const temporary = options.quick ? mkdtempSync(join(tmpdir(), "cogni-bench-")) : undefined
const directory = options.output ?? temporary ?? join(import.meta.dirname, "results")
try {
  const measured: Array<Measured & { readonly name: string }> = []
  for (const name of Object.keys(quick)) measured.push({ name, ...(await measure(name, directory)) })
  const bars = measured.flatMap((one) => one.bars)
  Report.publish({
    name: "starts",
    title: "Starts, first calls and density, measured in one sequence",
    text: [
      "The bars of `pool.md`, `agents.md` and `sharing.md`. Those files have the samples of each value, unless one was " +
        "measured again later.",
      Report.barTable(bars),
      ...measured.map((one) => `${one.name}: ${Report.taken(one)}`)
    ].join("\n\n"),
    data: { measured },
    bars,
    directory: temporary === undefined ? directory : options.output
  })
} finally {
  if (temporary !== undefined) rmSync(temporary, { recursive: true, force: true })
}
