/** The check of identity, with a double of LiteLLM that writes a row from the headers of the marked call. */
import { assert, describe, it } from "@effect/vitest"
import * as SpendRows from "@cogni/sandbox-ledger/SpendRows"
import { Effect, Layer, Redacted, Result } from "effect"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"
import * as LocalServer from "../../../test/harness/LocalServer.ts"
import * as IdentityCheck from "../src/IdentityCheck.ts"
import * as LiteLlmSpendRows from "../src/LiteLlmSpendRows.ts"

const key = Redacted.make(LiteLlmRows.adminKey)

interface World {
  /** Changes the row that a call leaves. Without one, it is as LiteLLM writes it. */
  readonly changes?: LiteLlmRows.Row
  /** Status of the call's answer. */
  readonly status?: number
  /** The call leaves no row. */
  readonly isSilent?: boolean
}

const checked = Effect.fnUntraced(function* ({ changes = {}, isSilent = false, status = 200 }: World = {}) {
  const double = LiteLlmRows.make()
  const bodies: Array<string> = []
  const url = yield* LocalServer.serve((request, response) => {
    if (request.url !== "/v1/chat/completions") return LiteLlmRows.answer(double, request, response)
    const { headers } = request
    if (!isSilent)
      double.rows.push(
        LiteLlmRows.row(String(headers["x-litellm-call-id"]), {
          end_user: headers["x-litellm-end-user-id"],
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
    IdentityCheck.check({ url: `${url}/v1`, key, model: "small", waitSecondsMax: 0 }).pipe(
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
