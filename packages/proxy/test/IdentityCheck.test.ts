/** The check of identity, with a double of LiteLLM that writes a row from the headers of the marked call. */
import { assert, describe, it } from "@effect/vitest"
import * as SpendRows from "@cogni/sandbox-ledger/SpendRows"
import { Effect, Layer, Logger, Redacted, Result } from "effect"
import { createHash } from "node:crypto"
import * as Await from "../../../test/harness/Await.ts"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"
import * as LocalServer from "../../../test/harness/LocalServer.ts"
import * as IdentityCheck from "../src/IdentityCheck.ts"
import * as LiteLlmSpendRows from "../src/LiteLlmSpendRows.ts"
import * as RunKeys from "../src/RunKeys.ts"

const key = Redacted.make(LiteLlmRows.adminKey)

interface World {
  /** Changes the row that a call leaves. Without one, it is as LiteLLM writes it. */
  readonly changes?: LiteLlmRows.Row
  /** Status of the call's answer. */
  readonly status?: number
  /** The call leaves no row. */
  readonly isSilent?: boolean
  readonly runKeys?: IdentityCheck.IdentityCheckOptions["runKeys"]
}

const checked = Effect.fnUntraced(function* ({
  changes = {},
  isSilent = false,
  runKeys,
  status = 200
}: World = {}) {
  const double = LiteLlmRows.make()
  const bodies: Array<string> = []
  const url = yield* LocalServer.serve((request, response) => {
    if (request.url !== "/v1/chat/completions") return LiteLlmRows.answer(double, request, response)
    const { headers } = request
    if (!isSilent)
      double.rows.push(
        LiteLlmRows.row(String(headers["x-litellm-call-id"]), {
          end_user: headers["x-litellm-end-user-id"],
          api_key: createHash("sha256")
            .update(String(headers.authorization).slice("Bearer ".length))
            .digest("hex"),
          spend: 0.000_01,
          metadata: {
            spend_logs_metadata: JSON.parse(String(headers["x-litellm-spend-logs-metadata"]))
          },
          ...changes
        })
      )
    request.on("data", (data: Buffer) => bodies.push(data.toString("utf8")))
    request.once("end", () => LocalServer.respond(response, status, {}))
  })
  const rows = Layer.effect(
    SpendRows.SpendRows,
    Effect.sync(() => Result.getOrThrow(LiteLlmSpendRows.make({ url, key })))
  )
  const answer = yield* Effect.result(
    IdentityCheck.check({ url: `${url}/v1`, key, runKeys, model: "small", waitSecondsMax: 0 }).pipe(
      Effect.provide(rows)
    )
  )
  return { answer, bodies, double }
})

const refusals: ReadonlyArray<readonly [title: string, world: World, said: RegExp]> = [
  ["bills another account", { changes: { end_user: "account-1" } }, /bills another account/u],
  ["bills no account", { changes: { end_user: null } }, /bills no account/u],
  ["names no run", { changes: { metadata: {} } }, /does not name the run/u],
  [
    "names another run",
    { changes: { metadata: { spend_logs_metadata: { run_id: "run-00000001", attempt: 0 } } } },
    /does not name the run/u
  ],
  ["does not exist", { isSilent: true }, /no row of the marked call/u]
]

describe("IdentityCheck", () => {
  it.live("succeeds if the row has the account and the run that were sent", () =>
    Effect.gen(function* () {
      const { answer, bodies, double } = yield* checked()
      const proof = Result.getOrThrow(answer)
      assert.strictEqual(proof.costUsd, 0.000_01)
      assert.deepInclude(double.rows[0], { litellm_call_id: proof.callId, end_user: IdentityCheck.account })
      assert.include(bodies.join(""), `"model":"small"`)
      assert.lengthOf(double.rows, 1)
    })
  )

  for (const [title, world, said] of refusals)
    it.live(`fails if the row ${title}`, () =>
      Effect.gen(function* () {
        const { answer } = yield* checked(world)
        if (Result.isSuccess(answer)) return assert.fail("succeeded")
        assert.match(answer.failure.detail, said)
        assert.isNotEmpty(answer.failure.remedy)
        assert.notInclude(answer.failure.message, LiteLlmRows.adminKey)
      })
    )

  it.live("sends the call with a key of its own if runs have one, sees it on the row, and deletes it", () =>
    Effect.gen(function* () {
      const keys = yield* RunKeys.makeMemory()
      const { answer, double } = yield* checked({ runKeys: { keys } })
      const proof = Result.getOrThrow(answer)
      const [{ runKey, terms } = assert.fail("no key")] = yield* keys.created
      assert.deepInclude(terms, { models: ["small"], lifetimeSeconds: 960 })
      assert.strictEqual(double.rows[0]?.["api_key"], runKey.hash)
      assert.strictEqual(proof.runKeyHash, runKey.hash)
      assert.lengthOf(yield* keys.created, 1)
      assert.strictEqual((yield* keys.existing).size, 0)
    })
  )

  it.live("fails if the row is under another key, and deletes the call's own", () =>
    Effect.gen(function* () {
      const keys = yield* RunKeys.makeMemory()
      const { answer } = yield* checked({ runKeys: { keys }, changes: { api_key: "a".repeat(64) } })
      if (Result.isSuccess(answer)) return assert.fail("succeeded")
      assert.include(answer.failure.message, "not under the key that it was sent with. Check proxies")
      assert.lengthOf(yield* keys.created, 1)
      assert.strictEqual((yield* keys.existing).size, 0)
    })
  )

  it.live("fails without a key for the call, unless runs may use the gateway's key then", () =>
    Effect.gen(function* () {
      const refused = new RunKeys.RunKeyFailed({
        operation: "create",
        detail: "LiteLLM answered 401",
        remedy: "Use LiteLLM's master key",
        isRetryable: false,
        isUncertain: false
      })
      const keys = yield* RunKeys.makeMemory({
        fault: (operation) => (operation === "create" ? Effect.fail(refused) : Effect.void)
      })
      const { answer, double } = yield* checked({ runKeys: { keys } })
      if (Result.isSuccess(answer)) return assert.fail("succeeded")
      assert.include(
        answer.failure.message,
        "cannot be created: LiteLLM answered 401. Use LiteLLM's master key"
      )
      assert.lengthOf(double.rows, 0, "nothing was sent")
      const preferred = yield* checked({ runKeys: { keys, fallback: "masterKey" } })
      assert.isUndefined(Result.getOrThrow(preferred.answer).runKeyHash)
    }).pipe(Effect.provide(Logger.layer([])))
  )

  it.effect("waits for the row three times as long as rows are collected, and at least 3 minutes", () =>
    Effect.gen(function* () {
      const url = yield* LocalServer.serve((_, response) => LocalServer.respond(response, 200, {}))
      for (const [rowsSeconds, seconds] of [
        [undefined, 180],
        [10, 180],
        [100, 300]
      ] as const) {
        const rows = yield* SpendRows.makeMemory("litellm")
        const checking = yield* IdentityCheck.check({ url, key, model: "small", rowsSeconds }).pipe(
          Effect.provideService(SpendRows.SpendRows, rows.service),
          Effect.flip,
          Effect.forkChild
        )
        yield* Await.until(
          "the call has an answer",
          Effect.map(rows.asked, (asked) => asked.length > 0)
        )
        const error = yield* Effect.flatten(Await.ended(checking))
        assert.include(error.detail, `no row of the marked call after ${seconds} s`)
      }
    })
  )

  it.live("fails if the call is refused, and names the model", () =>
    Effect.gen(function* () {
      const { answer } = yield* checked({ status: 400 })
      if (Result.isSuccess(answer)) return assert.fail("succeeded")
      assert.include(answer.failure.detail, "400")
      assert.include(answer.failure.remedy, "small")
    })
  )

  it.effect("fails for an upstream that is gone, and for one that keeps no rows", () =>
    Effect.gen(function* () {
      const options = { url: "http://127.0.0.1:1", key, model: "small" }
      const { service } = yield* SpendRows.makeMemory("litellm")
      const gone = yield* Effect.flip(
        IdentityCheck.check(options).pipe(Effect.provideService(SpendRows.SpendRows, service))
      )
      assert.include(gone.detail, "cannot be reached")
      const none = yield* Effect.flip(
        IdentityCheck.check(options).pipe(Effect.provide(SpendRows.layerNone("openai")))
      )
      assert.include(none.detail, "openai keeps no rows")
    })
  )
})
