/** Runs of dead processes: settled from their audits, and no audit is deleted before that. */
import { assert, describe, it } from "@effect/vitest"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as Ledger from "@cogni/sandbox-ledger/Ledger"
import * as LedgerSamples from "../../ledger/src/testing/LedgerSamples.ts"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import { Effect } from "effect"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { linesOf, runId, started } from "../../proxy/test/AuditLines.ts"
import * as RunLedger from "../src/RunLedger.ts"

const owner = (startTicks: number) =>
  ResourceLabels.formatOwner({ ...HostOwner.self(), startTicks: HostOwner.self().startTicks + startTicks })

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "run-ledger-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const settings = { prices: undefined }

const auditOf = (path: string) => join(path, AuditLog.relativePath)

describe("RunLedger", () => {
  it.live("charges an open call of a dead process as reserved, and leaves a living process alone", () =>
    Effect.gen(function* () {
      const path = yield* directory
      mkdirSync(dirname(auditOf(path)))
      writeFileSync(auditOf(path), linesOf([started("call-1", { costUsdMax: 0.75 })]).join(""))
      const ledger = yield* Ledger.Ledger
      const run = { host: HostOwner.machineName(), directory: path }
      yield* ledger.open(LedgerSamples.runOf(runId, { ...run, owner: owner(1) }))
      const living = LedgerSamples.runOf("run-live-00000001", { ...run, owner: owner(0) })
      yield* ledger.open(living)
      yield* RunLedger.settled(settings, [])
      const { entries } = yield* ledger.list({})
      assert.strictEqual(entries.length, 1)
      assert.deepInclude(entries[0], {
        usageUnitId: "call-1",
        costUsd: 0.75,
        priceSource: "reservation",
        state: "estimated",
        reason: "call_open"
      })
      assert.deepStrictEqual(yield* ledger.openRuns(run.host), [living])
    }).pipe(Effect.provide(Ledger.layerMemory()))
  )

  it.live(
    "settles a run whose audit will be deleted, although its process lives and could not settle it",
    () =>
      Effect.gen(function* () {
        const path = yield* directory
        mkdirSync(dirname(auditOf(path)))
        writeFileSync(auditOf(path), linesOf([started("call-1", { costUsdMax: 0.75 })]).join(""))
        const ledger = yield* Ledger.Ledger
        const living = { host: HostOwner.machineName(), directory: path, owner: owner(0) }
        yield* ledger.open(LedgerSamples.runOf(runId, living))
        yield* RunLedger.settled(settings, [runId])
        const { entries } = yield* ledger.list({})
        assert.deepStrictEqual(
          entries.map(({ costUsd }) => costUsd),
          [0.75]
        )
        assert.deepStrictEqual(yield* ledger.openRuns(living.host), [])
      }).pipe(Effect.provide(Ledger.layerMemory()))
  )

  it.live("refuses to go on while an audit that is not in the ledger cannot be read", () =>
    Effect.gen(function* () {
      const path = yield* directory
      mkdirSync(auditOf(path), { recursive: true })
      const ledger = yield* Ledger.Ledger
      yield* ledger.open(
        LedgerSamples.runOf(runId, { host: HostOwner.machineName(), directory: path, owner: owner(1) })
      )
      const error = yield* Effect.flip(RunLedger.settled(settings, []))
      assert.include(error.message, "the cost of 1 run is not in the ledger yet")
    }).pipe(Effect.provide(Ledger.layerMemory()))
  )
})
