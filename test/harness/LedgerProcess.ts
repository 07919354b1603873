/**
 * A separate process that settles runs in a ledger, like one of several recoveries that start together.
 *
 * It knows of each run what its audit says. So several processes settle the same runs with the same entries.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Ledger } from "@cogni/sandbox-ledger"
import * as LedgerSamples from "../../packages/ledger/src/testing/LedgerSamples.ts"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import { Effect, Layer, Result } from "effect"
import { spawn } from "node:child_process"
import * as LinkedPrograms from "./LinkedPrograms.ts"

const secondsMax = 300

/** Number of runs, and of calls in each. */
export const runs = 20
export const calls = 30

export const runIdOf = (index: number): string => `run-shared-${String(index).padStart(4, "0")}`

/** Settles all runs in a separate process. Returns its number of stored entries, or its errors. */
export const settle = (url: string): Effect.Effect<string> =>
  Effect.callback((resume) => {
    const child = spawn(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", LinkedPrograms.pathOf(import.meta.filename), url],
      {
        stdio: ["ignore", "pipe", "pipe"],
        timeout: secondsMax * 1000
      }
    )
    let said = ""
    child.stdout.on("data", (chunk) => (said += String(chunk)))
    child.stderr.on("data", (chunk) => (said += String(chunk)))
    child.once("close", () => resume(Effect.succeed(said)))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

const settleAll = Ledger.Ledger.use((ledger) =>
  Effect.forEach(
    Array.from({ length: runs }, (_, index) => runIdOf(index)),
    (runId) => {
      const run = LedgerSamples.runOf(runId)
      const entries = Array.from({ length: calls }, (_, index) =>
        LedgerSamples.entryOf(runId, `call-${index}`, { costUsd: 0.1 })
      )
      return Effect.andThen(
        ledger.open(run),
        Effect.map(ledger.settle({ run, entries, closedAt: run.expiresAt }), ({ added }) => added)
      )
    }
  )
)

const main = Effect.gen(function* () {
  const address = Result.getOrThrow(DatabaseAddress.parse(process.argv[2] ?? ""))
  const added = yield* Effect.provide(settleAll, SqlLedger.layer.pipe(Layer.provide(Database.layer(address))))
  process.stdout.write(String(added.reduce((sum, count) => sum + count, 0)))
})

if (import.meta.main) NodeRuntime.runMain(main)
