/** `spend reconcile` on a ledger in the state directory, with a double of LiteLLM: exit codes and texts. */
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import * as LedgerContract from "@cogni/sandbox-ledger/testing/LedgerContract"
import * as Database from "@cogni/sandbox-sql/Database"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { join } from "node:path"
import * as CliWorld from "../../../test/harness/CliWorld.ts"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"
import * as OpenRouterGenerations from "../../../test/harness/OpenRouterGenerations.ts"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"

const key = "a".repeat(64)
const run = "run-00000001"

const setUpWith = Effect.fnUntraced(function* (entries: ReadonlyArray<LedgerEntry>) {
  const double = yield* LiteLlmRows.acquire
  const state = yield* CliWorld.directory
  yield* Effect.gen(function* () {
    const ledger = yield* Ledger
    const settled = LedgerContract.runOf(run)
    yield* ledger.open(settled)
    yield* ledger.settle({
      run: settled,
      entries,
      closedAt: "2026-01-31T10:05:00.000Z"
    })
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
  ["call-1", "call-2"].map((unit) => LedgerContract.entryOf(run, unit, { runKeyHash: key }))
)

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
        LedgerContract.entryOf(run, "call-1", { upstream: "openrouter", upstreamCallId: "gen-1" }),
        LedgerContract.entryOf(run, "call-2", { upstream: "openrouter" })
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
