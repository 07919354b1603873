/** Limits of the account that pays, in a gateway: shared by its runs in all threads, and told to the agent. */
import { assert, describe, it } from "@effect/vitest"
import * as CallPace from "@cogni/sandbox-core/CallPace"
import { Effect } from "effect"
import * as Gateway from "./GatewaySocket.ts"

const chat = Gateway.http(Gateway.chat({ max_tokens: 10 }))

describe("an account", () => {
  it.live("shares its calls per minute among its runs, and an agent learns how long to wait", () =>
    Effect.gen(function* () {
      const pace = CallPace.make(2)
      // Two minutes ahead, so that none ends during the test: a clock further ahead is taken for one that was wrong.
      pace.take(Date.now() + 120_000)
      const account = { reservesCost: false, pace: pace.buffer }
      const one = yield* Gateway.make({ shardsMax: 2, request: { account } })
      const two = yield* Gateway.openRun(one.proxy, { request: { account } })
      const other = yield* Gateway.openRun(one.proxy)
      assert.strictEqual((yield* one.send(chat)).status, 200)
      const refused = yield* two.send(chat)
      assert.strictEqual(refused.status, 429)
      assert.strictEqual(refused.headers.get("retry-after"), "60")
      const { error } = JSON.parse(refused.body)
      assert.strictEqual(error.code, "account_calls_per_minute_exceeded")
      assert.strictEqual(error.type, "rate_limit_error")
      assert.include(error.message, "The account that pays is limited to 2 calls per minute, in all its runs")
      assert.strictEqual((yield* other.send(chat)).status, 200, "a run of an account without a limit")
      pace.allow(3)
      assert.strictEqual((yield* two.send(chat)).status, 200)
      const { exhausted, usage } = yield* two.endpoint.finish
      assert.strictEqual(usage?.calls, 1)
      assert.isUndefined(exhausted, "waiting helps")
    })
  )

  it.live("tells an agent that what its account reserved is spent, as an exhausted quota", () =>
    Effect.gen(function* () {
      const run = yield* Gateway.make({
        prices: { "contract-model": { input: 1_000_000, output: 1_000_000 } },
        request: { account: { reservesCost: true } },
        llm: { budget: { onExhausted: "refuse", costUsdMax: 0.000_001 } }
      })
      yield* run.send(chat)
      const refused = yield* run.send(chat)
      assert.strictEqual(refused.status, 429)
      const { error } = JSON.parse(refused.body)
      assert.deepStrictEqual([error.type, error.code], ["insufficient_quota", "insufficient_quota"])
      assert.include(
        error.message,
        "The account that pays reserved 0.000001 US dollars for this run, and it is spent"
      )
    })
  )
})
