/** `spend reconcile` on a ledger in the state directory, with a double of LiteLLM: exit codes and texts. */
import { assert, describe, it } from "@effect/vitest"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import * as RunStore from "@cogni/sandbox-core/RunStore"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { layerMemory, Ledger } from "@cogni/sandbox-ledger/Ledger"
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import type { Report } from "@cogni/sandbox-ledger/ReconciliationReport"
import * as LedgerSamples from "../../ledger/src/testing/LedgerSamples.ts"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as Database from "@cogni/sandbox-sql/Database"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import * as CliWorld from "../../../test/harness/CliWorld.ts"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"
import * as OpenRouterGenerations from "../../../test/harness/OpenRouterGenerations.ts"
import * as AuditLines from "../../proxy/test/AuditLines.ts"
import * as Cli from "../src/Cli.ts"
import { exitCode } from "../src/ExitCode.ts"
import * as Output from "../src/Output.ts"
import * as ReconcileCommand from "../src/ReconcileCommand.ts"
import { Settings } from "../src/Settings.ts"

const key = "a".repeat(64)
const run = "run-00000001"

const setUpWith = Effect.fnUntraced(function* (
  entries: ReadonlyArray<LedgerEntry>,
  more: (state: string) => Effect.Effect<void, unknown, Ledger> = () => Effect.void
) {
  const double = yield* LiteLlmRows.acquire
  const state = yield* CliWorld.directory
  yield* Effect.gen(function* () {
    const ledger = yield* Ledger
    const settled = LedgerSamples.runOf(run)
    yield* ledger.open(settled)
    yield* ledger.settle({
      run: settled,
      entries,
      closedAt: "2026-01-31T10:05:00.000Z"
    })
    yield* more(state)
  }).pipe(
    Effect.provide(
      SqlLedger.layer.pipe(Layer.provide(Database.layer({ _tag: "Sqlite", path: join(state, "cogni.db") })))
    )
  )
  const ask = Effect.fnUntraced(function* (
    argv: ReadonlyArray<string>,
    environment: Record<string, string> = {}
  ) {
    const { layer, said } = Output.makeMemory()
    const code = yield* Cli.main({
      argv: ["spend", ...argv],
      environment: {
        COGNI_STATE_DIR: state,
        COGNI_LLM_URL: double.url,
        COGNI_LLM_KEY: LiteLlmRows.adminKey,
        ...environment
      }
    }).pipe(Effect.provide(Layer.merge(layer, NodeServices.layer)))
    return { ...said, code }
  })
  return { ask, double }
})

const setUp = setUpWith(
  ["call-1", "call-2"].map((unit) => LedgerSamples.entryOf(run, unit, { runKeyHash: key }))
)

/** Opens a run whose process was killed, with an audit that `write` makes. */
const killed = (write: (audit: string) => void) => (state: string) =>
  Effect.gen(function* () {
    const directory = join(state, "killed")
    const audit = join(directory, AuditLog.relativePath)
    mkdirSync(dirname(audit), { recursive: true })
    write(audit)
    const self = HostOwner.self()
    const owner = ResourceLabels.formatOwner({ ...self, startTicks: self.startTicks + 1 })
    const ledger = yield* Ledger
    yield* ledger.open(
      LedgerSamples.runOf(AuditLines.runId, { host: HostOwner.machineName(), directory, owner })
    )
  })

/** Runs the command on a pass with this result. */
const reported = Effect.fnUntraced(function* (
  changes: Partial<Report>,
  input: Partial<Parameters<typeof ReconcileCommand.compared>[0]> = {}
) {
  const { layer, said } = Output.makeMemory()
  const reconciler = Layer.succeed(Reconciler.Reconciler, {
    reconcile: () => Effect.succeed({ ...nothing, ...changes })
  })
  const settings = { prices: undefined } as unknown as Settings["Service"]
  const failure = yield* ReconcileCommand.compared({
    run: undefined,
    from: undefined,
    to: undefined,
    output: "text",
    ...input
  }).pipe(
    Effect.as(undefined),
    Effect.catchTag("Refusal", Effect.succeed),
    Effect.provide([layer, reconciler, layerMemory(), RunStore.layerMemory]),
    Effect.provideService(Settings, settings)
  )
  return { ...said, code: failure === undefined ? said.code : exitCode[failure.exit], failure }
})

const nothing: Report = {
  checked: 0,
  recorded: { pending: 0, matched: 0, drifted: 0, missing: 0, estimated: 0 },
  waiting: 0,
  unread: 0,
  foreign: 0,
  rows: 0,
  findings: [],
  unresolved: 0,
  truncated: false
}

describe("spend reconcile", () => {
  it.live("exits with 0 if every call agrees, and compares nothing again without a reason", () =>
    Effect.gen(function* () {
      const { ask, double } = yield* setUp
      double.rows.push(LiteLlmRows.row("call-1"), LiteLlmRows.row("call-2"))
      const first = yield* ask(["reconcile"])
      assert.strictEqual(first.stdout, "2 calls checked: 2 matched\n")
      assert.strictEqual(first.code, 0)
      const asked = double.requests.length
      assert.strictEqual((yield* ask(["reconcile"])).stdout, "0 calls checked: 0 matched\n")
      assert.lengthOf(double.requests, asked)
    })
  )

  it.live("exits with 1 if a call differs or has no row, now and when it is asked again", () =>
    Effect.gen(function* () {
      const { ask, double } = yield* setUp
      double.rows.push(LiteLlmRows.row("call-1", { spend: 7 }))
      const { code, stderr, stdout } = yield* ask(["reconcile"])
      assert.strictEqual(code, 1, stderr)
      assert.include(stdout, `${run}/0/call-1: drifted (cost_differs): the row costs 7 USD`)
      assert.include(stdout, `${run}/0/call-2: missing (no_row)`)
      const again = yield* ask(["reconcile", "--from", "2026-01-01", "--output", "json"])
      assert.strictEqual(again.code, 1)
      assert.deepInclude(JSON.parse(again.stdout), { checked: 2, unresolved: 2, findings: [], failure: null })
      double.rows.push(LiteLlmRows.row("call-2"))
      assert.strictEqual((yield* ask(["reconcile", "--to", "2026-12-31"])).code, 1)
      double.rows[0] = LiteLlmRows.row("call-1")
      assert.strictEqual((yield* ask(["reconcile", "--to", "2026-12-31"])).code, 0)
    })
  )

  it.live("exits with 69 if rows cannot be read, and changes nothing", () =>
    Effect.gen(function* () {
      const { ask, double } = yield* setUp
      double.trouble = () => ({ _tag: "Status", status: 401 })
      const { code, stderr, stdout } = yield* ask(["reconcile"])
      assert.strictEqual(code, 69)
      assert.include(stdout, "2 calls checked: 0 matched, 2 not read")
      assert.include(stderr, "not all rows could be read: LiteLLM: it answers 401")
      assert.notInclude(stderr + stdout, LiteLlmRows.adminKey)
      const json = yield* ask(["reconcile", "--output", "json"])
      assert.strictEqual(json.code, 69)
      assert.deepInclude(JSON.parse(json.stdout), { unread: 2, unresolved: 0 })
      assert.strictEqual(JSON.parse(json.stdout).failure.code, "key_refused")
    })
  )

  it.effect("exits with 69 if calls are beyond the limits of a pass, and says how many and what to do", () =>
    Effect.gen(function* () {
      const unread = yield* reported({ checked: 2100, unread: 100, unresolved: 1 })
      assert.strictEqual(unread.code, 69)
      assert.include(
        unread.stdout,
        "2100 calls checked: 0 matched, 1 that differ or have no row, 100 not read"
      )
      assert.strictEqual(
        unread.failure?.message,
        "100 calls not read: a pass asks for at most 2000 calls by their IDs. " +
          "Repeat the command, or compare fewer calls at a time: --run, or --from and --to"
      )
      const truncated = yield* reported({ truncated: true }, { from: "2026-01-01T00:00:00.000Z" })
      assert.strictEqual(truncated.code, 69)
      assert.strictEqual(
        truncated.failure?.message,
        "the pass ended at its limit of 300 s, and calls are left. " +
          "Compare fewer calls at a time: --run, or --from and --to that are closer together"
      )
      const json = yield* reported({ unread: 1, truncated: true }, { output: "json" })
      assert.strictEqual(json.code, 69)
      const { failure } = JSON.parse(json.stdout)
      assert.strictEqual(failure.code, "incomplete")
      assert.match(failure.message, /^1 call not read: .*; the pass ended at its limit of 300 s/u)
      assert.include(json.stderr, failure.message)
      assert.strictEqual((yield* reported({ waiting: 1, unresolved: 1 })).code, 1)
      assert.strictEqual((yield* reported({ waiting: 1 })).code, 0)
    })
  )

  it.live("takes a row of 0 for tokens as the cost of a model only if that is free", () =>
    Effect.gen(function* () {
      const { costUsd: _cost, ...unpriced } = LedgerSamples.entryOf(run, "call-1", { runKeyHash: key })
      const { ask, double } = yield* setUpWith([{ ...unpriced, priceSource: "none", reason: "no_price" }])
      double.rows.push(LiteLlmRows.row("call-1", { spend: 0 }))
      const file = join(yield* CliWorld.directory, "limits.json")
      writeFileSync(file, JSON.stringify({ freeModels: ["gpt-*"] }))
      const first = yield* ask(["reconcile"])
      assert.include(
        first.stdout,
        `${run}/0/call-1: drifted (row_without_cost): the cost was unknown, the row has tokens and a cost of 0`
      )
      assert.strictEqual(first.code, 1)
      const all = ["reconcile", "--from", "2026-01-01"]
      const paid = JSON.stringify({ "gpt-5": { input: 1, output: 1 } })
      assert.strictEqual((yield* ask(all, { COGNI_LLM_PRICES: paid })).code, 1)
      const free = yield* ask(all, { COGNI_ACCOUNT_LIMITS_FILE: file })
      assert.strictEqual(free.stdout, "1 call checked: 1 matched\n", free.stderr)
      assert.strictEqual(free.code, 0)
    })
  )

  it.live("settles the run of a killed process first", () =>
    Effect.gen(function* () {
      const audit = AuditLines.linesOf([AuditLines.started("call-1", { costUsdMax: 0.75 })]).join("")
      const { ask, double } = yield* setUpWith(
        [],
        killed((path) => writeFileSync(path, audit))
      )
      const { code, stderr, stdout } = yield* ask(["reconcile"], { COGNI_LLM_ROWS_SECONDS: "1" })
      assert.strictEqual(stdout, "1 call checked: 0 matched, 1 whose row may still come\n", stderr)
      assert.strictEqual(code, 0)
      assert.lengthOf(double.requests, 0, "its row is not due yet")
    })
  )

  it.live("exits with 69 if the run of a killed process cannot be settled", () =>
    Effect.gen(function* () {
      const unreadable = killed((path) => mkdirSync(path))
      const { ask } = yield* setUpWith([], unreadable)
      const { code, stderr, stdout } = yield* ask(["reconcile"])
      assert.strictEqual(stdout, "0 calls checked: 0 matched\n")
      assert.strictEqual(code, 69)
      assert.include(stderr, "1 run of dead processes could not be settled, so their calls are not compared")
    })
  )

  it.live("calls no call missing if its key sees only rows of its own", () =>
    Effect.gen(function* () {
      const { ask, double } = yield* setUp
      double.isAdmin = false
      const { code, stderr, stdout } = yield* ask(["reconcile"])
      assert.strictEqual(code, 69)
      assert.include(stdout, "0 matched, 2 not read")
      assert.include(stderr, "This key may see only rows of its own")
      assert.notInclude(stdout, "missing")
    })
  )

  it.live("says that another upstream keeps no rows, and asks it for nothing", () =>
    Effect.gen(function* () {
      const { ask, double } = yield* setUp
      const { code, stdout } = yield* ask(["reconcile"], { COGNI_LLM_PROFILE: "openai" })
      assert.strictEqual(code, 0)
      assert.include(stdout, "2 of another upstream")
      assert.lengthOf(double.requests, 0)
    })
  )

  it.live("compares calls with OpenRouter's generations, if OpenRouter is the upstream", () =>
    Effect.gen(function* () {
      const openRouter = yield* OpenRouterGenerations.acquire
      openRouter.generations.push(OpenRouterGenerations.generation("gen-1"))
      const { ask } = yield* setUpWith([
        LedgerSamples.entryOf(run, "call-1", { upstream: "openrouter", upstreamCallId: "gen-1" }),
        LedgerSamples.entryOf(run, "call-2", { upstream: "openrouter" })
      ])
      const environment = {
        COGNI_LLM_URL: openRouter.url,
        COGNI_LLM_PROFILE: "openrouter",
        COGNI_LLM_KEY: OpenRouterGenerations.apiKey
      }
      const { code, stderr, stdout } = yield* ask(["reconcile"], environment)
      assert.strictEqual(stdout, "2 calls checked: 1 matched, 1 without rows to compare with\n", stderr)
      assert.strictEqual(code, 0)
      assert.deepStrictEqual(openRouter.requests, ["/api/v1/generation?id=gen-1"])
      const all = ["reconcile", "--from", "2026-01-01"]
      const refused = yield* ask(all, { ...environment, COGNI_LLM_KEY: "sk-other" })
      assert.strictEqual(refused.code, 69, refused.stdout)
      assert.include(refused.stderr, "OpenRouter: it answers 401")
      assert.include(refused.stderr, "OpenRouter account")
    })
  )

  it.live("needs an upstream, and a valid delay of its rows", () =>
    Effect.gen(function* () {
      const { ask } = yield* setUp
      assert.strictEqual((yield* ask(["reconcile"], { COGNI_LLM_URL: "", COGNI_LLM_KEY: "" })).code, 78)
      assert.strictEqual((yield* ask(["reconcile"], { COGNI_LLM_ROWS_SECONDS: "0" })).code, 78)
      assert.strictEqual((yield* ask(["reconcile", "--run", "run-unknown"])).code, 66)
      assert.strictEqual((yield* ask(["reconcile", "--from", "yesterday"])).code, 64)
    })
  )
})
