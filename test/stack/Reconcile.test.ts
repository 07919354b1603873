/**
 * The ledger reconciled with the rows of a real LiteLLM, in its PostgreSQL.
 *
 * LiteLLM has calls by the key of a run and by its master key. Its rows, its paging and its errors are its own.
 */
import { assert, describe, layer } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as Ledger from "@cogni/sandbox-ledger/Ledger"
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import type { LedgerRun } from "@cogni/sandbox-ledger/LedgerRun"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import { limitsFor } from "@cogni/sandbox-ledger/ReconciliationLimits"
import { SpendRows, type SpendQuery } from "@cogni/sandbox-ledger/SpendRows"
import * as KeyInjection from "@cogni/sandbox-proxy/KeyInjection"
import * as LiteLlmSpendRows from "@cogni/sandbox-proxy/LiteLlmSpendRows"
import { Context, Effect, Layer, Redacted, Result, Stream } from "effect"
import { createHash } from "node:crypto"
import * as Await from "../harness/Await.ts"
import * as LiteLlmDatabase from "../harness/LiteLlmDatabase.ts"
import * as Pace from "../harness/Pace.ts"

class LiteLlm extends Context.Service<LiteLlm, LiteLlmDatabase.LiteLlmDatabase>()("test/Reconcile/LiteLlm") {}

/** One LiteLLM for all tests of this file: it takes half a minute to start. */
const liteLlm = Layer.effect(LiteLlm, LiteLlmDatabase.acquire)

const identity = (billingAccountId: string) => ({ billingAccountId, attempt: 0 })

/** Asks the model as the gateway does: with the host's call ID and the account. Returns its figures and cost. */
const called = Effect.fnUntraced(function* (
  { ask, masterKey }: LiteLlmDatabase.LiteLlmDatabase,
  run: LedgerRun,
  callId: string,
  key = masterKey
) {
  const { body, status } = yield* ask(
    "POST",
    "/v1/chat/completions",
    { model: run.model, messages: [{ role: "user", content: "Where is Lima?" }], user: run.billingAccountId },
    {
      key,
      headers: {
        "x-litellm-call-id": callId,
        "x-litellm-customer-id": run.billingAccountId,
        "x-litellm-end-user-id": run.billingAccountId,
        "x-litellm-spend-logs-metadata": KeyInjection.spendMetadata(run.runId, identity(run.billingAccountId))
      }
    }
  )
  const { usage = {} } = body as { readonly usage?: Readonly<Record<string, number>> }
  return { status, inputTokens: usage["prompt_tokens"], outputTokens: usage["completion_tokens"] }
})

const runOf = (name: string, changes: Partial<LedgerRun> = {}): LedgerRun => ({
  runId: RunId.make(`run-${name}-${crypto.randomUUID().slice(0, 8)}`),
  attempt: 0,
  billingAccountId: `account-${crypto.randomUUID()}`,
  upstream: "litellm",
  model: "chat",
  host: "here",
  owner: "boot/1/1",
  openedAt: new Date().toISOString(),
  expiresAt: new Date(Date.now() + 3_600_000).toISOString(),
  ...changes
})

const entryOf = (run: LedgerRun, usageUnitId: string, changes: Partial<LedgerEntry> = {}): LedgerEntry => ({
  runId: run.runId,
  attempt: 0,
  usageUnitId,
  revision: 0,
  at: run.openedAt,
  recordedAt: new Date().toISOString(),
  billingAccountId: run.billingAccountId,
  upstream: "litellm",
  model: run.model,
  currency: "USD",
  priceSource: "none",
  streamed: false,
  outcome: "completed",
  state: "pending",
  ...changes
})

const rowsLayer = Layer.unwrap(
  Effect.map(LiteLlm, ({ masterKey, url }) =>
    LiteLlmSpendRows.layer({ url, key: Redacted.make(masterKey), requestSecondsMax: Pace.requestSecondsMax })
  )
)

/** Settles a run and reconciles until each call has a verdict. Returns the calls by their IDs. */
const reconciled = Effect.fnUntraced(function* (run: LedgerRun, entries: ReadonlyArray<LedgerEntry>) {
  const ledger = yield* Ledger.makeMemory()
  yield* ledger.open(run)
  yield* ledger.settle({ run, entries, closedAt: new Date().toISOString() })
  const { reconcile } = yield* Reconciler.make({
    // The deadline is long, so that a slow LiteLLM is waited for.
    limits: { ...limitsFor(1), rowsDelaySeconds: 0, deadlineSeconds: Pace.hangMillis / 1000 }
  }).pipe(Effect.provideService(Ledger.Ledger, ledger))
  yield* Await.until(
    "each call has a verdict",
    Effect.map(reconcile(), ({ unread, waiting }) => unread + waiting === 0)
  )
  const { entries: found } = yield* ledger.list({ runId: run.runId })
  return new Map(found.map((entry) => [entry.usageUnitId, entry]))
})

const rowsOf = (query: SpendQuery) => SpendRows.use(({ rowsOf: found }) => Stream.runCollect(found(query)))

layer(Layer.provideMerge(rowsLayer, liteLlm), { excludeTestServices: true, timeout: Pace.hangMillis })(
  "Reconciliation with LiteLLM",
  (it) => {
    describe("by the key of a run", () => {
      it.effect(
        "takes unknown costs from the rows, finds one that differs, and a row without a call",
        () =>
          Effect.gen(function* () {
            const lite = yield* LiteLlm
            const { body } = yield* lite.ask("POST", "/key/generate", { models: ["chat"], duration: "15m" })
            const { key } = body as { readonly key: string }
            const run = runOf("key")
            const own = { runKeyHash: createHash("sha256").update(key).digest("hex") }
            const ids = Array.from({ length: 4 }, () => crypto.randomUUID())
            const told = yield* Effect.forEach(ids, (id) => called(lite, run, id, key))
            assert.isTrue(told.every(({ status }) => status === 200))
            const [first, second, third, stranger] = ids as [string, string, string, string]
            const { inputTokens = 0, outputTokens = 0 } = told[0]!
            const found = yield* reconciled(run, [
              entryOf(run, first, own),
              entryOf(run, second, { ...own, inputTokens, outputTokens }),
              entryOf(run, third, { ...own, inputTokens, outputTokens, costUsd: 5, priceSource: "upstream" })
            ])
            const cost = (inputTokens * 2.5 + outputTokens * 10) / 1e6
            for (const id of [first, second]) {
              assert.deepInclude(found.get(id), {
                state: "matched",
                reason: "figures_from_row",
                inputTokens,
                outputTokens
              })
              assert.closeTo(found.get(id)!.costUsd!, cost, 1e-9)
            }
            assert.deepInclude(found.get(third), { state: "drifted", reason: "cost_differs", costUsd: 5 })
            yield* Await.until(
              "the row of the other call exists",
              Effect.map(rowsOf({ _tag: "Calls", calls: [{ callId: stranger }] }), (rows) => rows.length > 0)
            )
            const unknown = [...found.values()].filter(({ reason }) => reason === "unknown_call")
            assert.isAtMost(unknown.length, 1)
            for (const entry of unknown) assert.isUndefined(entry.costUsd)
          }),
        { timeout: Pace.hangMillis }
      )
    })

    it.effect(
      "finds calls with the master key by their account, and one that another account paid",
      () =>
        Effect.gen(function* () {
          const lite = yield* LiteLlm
          const run = runOf("account")
          const ids = Array.from({ length: 5 }, () => crypto.randomUUID())
          yield* Effect.forEach(ids, (id) => called(lite, run, id))
          const stolen = crypto.randomUUID()
          yield* called(lite, { ...run, billingAccountId: "someone-else" }, stolen)
          yield* Await.until(
            "the row of the stolen call exists",
            Effect.map(rowsOf({ _tag: "Calls", calls: [{ callId: stolen }] }), (rows) => rows.length > 0)
          )
          const found = yield* reconciled(
            run,
            [...ids, stolen].map((id) => entryOf(run, id, { at: new Date().toISOString() }))
          )
          for (const id of ids) assert.strictEqual(found.get(id)!.state, "matched", id)
          assert.deepInclude(found.get(stolen), { state: "drifted", reason: "identity_differs" })
        }),
      { timeout: Pace.hangMillis }
    )

    it.effect(
      "reads rows with the same fields by ID and by account, and only those",
      () =>
        Effect.gen(function* () {
          const lite = yield* LiteLlm
          const run = runOf("fields")
          const callId = crypto.randomUUID()
          yield* called(lite, run, callId)
          const byCall: SpendQuery = { _tag: "Calls", calls: [{ callId }] }
          yield* Await.until(
            "the row exists",
            Effect.map(rowsOf(byCall), (rows) => rows.length > 0)
          )
          const [row] = yield* rowsOf(byCall)
          assert.deepInclude(row, {
            callId,
            endUser: run.billingAccountId,
            model: "chat",
            metadata: { runId: run.runId, attempt: 0 },
            status: "success",
            zone: "stated"
          })
          const nowMs = Date.now()
          assert.isBelow(Math.abs(Date.parse(row!.startedAt!) - nowMs), Pace.hangMillis)
          const window = {
            from: new Date(nowMs - 3_600_000).toISOString(),
            to: new Date(nowMs + 3_600_000).toISOString()
          }
          const byAccount = yield* rowsOf({ _tag: "Account", billingAccountId: run.billingAccountId, window })
          assert.deepStrictEqual(byAccount, [row!])
        }),
      { timeout: Pace.hangMillis }
    )

    it.effect(
      "reports a refused key and a database that is gone, and reads on when it is back",
      () =>
        Effect.gen(function* () {
          const { database, url } = yield* LiteLlm
          const spend = (key: string) =>
            Result.getOrThrow(
              LiteLlmSpendRows.make({
                url,
                key: Redacted.make(key),
                requestSecondsMax: Pace.requestSecondsMax
              })
            )
          const query: SpendQuery = { _tag: "Calls", calls: [{ callId: "none" }] }
          const refused = yield* Effect.flip(Stream.runCollect(spend("sk-wrong").rowsOf(query)))
          assert.strictEqual(refused.problem, "key_refused")
          yield* database.stop
          const gone = yield* Effect.flip(rowsOf(query)).pipe(Effect.ensuring(database.start))
          assert.notInclude(gone.message, "sk-")
          yield* Await.until("LiteLLM has its database again", Effect.isSuccess(rowsOf(query)))
          assert.deepStrictEqual(yield* rowsOf(query), [])
        }),
      { timeout: Pace.hangMillis }
    )
  }
)
