/** Keys that change, are missing, or are replaced by signatures, while runs are open. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import type { SigningRequest } from "../src/internal/gateway/UpstreamKeys.ts"
import * as RunKeys from "../src/RunKeys.ts"
import * as UpstreamKey from "../src/UpstreamKey.ts"
import * as Gateway from "./GatewaySocket.ts"
import * as ThreadMessages from "./ThreadMessages.ts"

const answered = { _tag: "Answer" } as const

/** Keys that occur nowhere else. All contain this text. */
const needle = "planted-1d9f"
const keyNumber = (number: number) => `sk-${needle}-${number}`

/** Source with a new key each time it is asked. */
const rotating = () => {
  let times = 0
  return Effect.sync(() => Redacted.make(keyNumber(++times)))
}

const keysOf = (gateway: Effect.Success<ReturnType<typeof Gateway.make>>) =>
  Effect.map(gateway.upstream.received, (received) =>
    received.map(({ headers }) => headers.find(([name]) => name === "authorization")?.[1])
  )

/** Asserts that no key is in the answers, the audit, or the run's traffic. */
const clean = Effect.fnUntraced(function* (
  gateway: Effect.Success<ReturnType<typeof Gateway.make>>,
  ...answers: ReadonlyArray<Gateway.Answer>
) {
  const traffic = yield* gateway.endpoint.finish
  const everything = `${JSON.stringify(traffic)} ${yield* gateway.audit} ${answers.map(({ text }) => text).join(" ")}`
  assert.notInclude(everything, needle)
  return everything
})

const echo = (status: number, ...texts: ReadonlyArray<string>) =>
  ({
    _tag: "Error",
    status,
    body: JSON.stringify({ error: { message: `wrong: ${texts.join(" ")}` } })
  }) as const

describe("a key from an effect", () => {
  it.live("is renewed in a run that is open, and neither the old nor the new one is recorded", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        key: rotating(),
        keySecondsMax: 0,
        auditBodies: "full",
        script: [answered, echo(400, keyNumber(2), keyNumber(3)), answered]
      })
      const answers = []
      for (let index = 0; index < 3; index++) answers.push(yield* gateway.send(Gateway.http(Gateway.chat())))
      // The first key was only checked, when the run began.
      const keys = yield* keysOf(gateway)
      assert.deepStrictEqual(
        keys,
        [2, 3, 4].map((number) => `Bearer ${keyNumber(number)}`)
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        [200, 400, 200]
      )
      assert.notInclude(answers[1]!.text, keyNumber(3))
      const traffic = yield* gateway.endpoint.finish
      assert.notInclude(`${JSON.stringify(traffic)} ${yield* gateway.audit}`, keyNumber(3))
    })
  )

  it.live("is kept as long as its limit allows", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ key: rotating(), script: [answered] })
      for (let index = 0; index < 3; index++) yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.deepStrictEqual([...new Set(yield* keysOf(gateway))], [`Bearer ${keyNumber(1)}`])
      yield* clean(gateway)
    })
  )

  it.live("that the upstream refuses makes the agent retry, and the refusal does not show it", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        key: rotating(),
        script: [echo(401, keyNumber(1)), answered]
      })
      const refused = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(refused.status, 503)
      assert.strictEqual(JSON.parse(refused.body).error.code, "upstream_key_refused")
      assert.strictEqual(refused.headers.get("retry-after"), "1")
      assert.isFalse(refused.headers.has("x-should-retry"))
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* clean(gateway, refused)
    })
  )

  it.live("that is not available fails a call, with a retry only if that can help", () =>
    Effect.gen(function* () {
      for (const [isRetryable, status] of [
        [true, 503],
        [false, 502]
      ] as const) {
        let times = 0
        const key = Effect.suspend(() => {
          times += 1
          return times === 1
            ? Effect.succeed(Redacted.make(keyNumber(1)))
            : Effect.fail(
                new UpstreamKey.KeyUnavailable({
                  detail: "the vault is sealed",
                  remedy: "Unseal it",
                  isRetryable
                })
              )
        })
        const gateway = yield* Gateway.make({ key, keySecondsMax: 0, script: [answered] })
        const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
        assert.strictEqual(answer.status, status, answer.text)
        assert.strictEqual(JSON.parse(answer.body).error.code, "upstream_key_unavailable")
        assert.strictEqual(answer.headers.get("x-should-retry"), isRetryable ? undefined : "false")
        assert.notInclude(answer.text, "vault")
        assert.deepStrictEqual(yield* gateway.upstream.received, [])
        assert.include(yield* clean(gateway, answer), "the vault is sealed")
      }
    })
  )

  it.live("that is not available when a run begins ends it, for good if a retry does not help", () =>
    Effect.gen(function* () {
      for (const [isRetryable, tag] of [
        [true, "ProxyFailed"],
        [false, "Misconfigured"]
      ] as const) {
        const key = Effect.fail(
          new UpstreamKey.KeyUnavailable({ detail: "the vault is sealed", remedy: "Unseal it", isRetryable })
        )
        const error = yield* Effect.flip(Gateway.make({ key }))
        assert.strictEqual(error._tag, tag)
        assert.include(error.message, "the vault is sealed. Unseal it")
      }
    })
  )

  it.live("that no header can carry ends the call, and is not shown", () =>
    Effect.gen(function* () {
      let times = 0
      const key = Effect.sync(() => Redacted.make(++times === 1 ? keyNumber(1) : `${keyNumber(2)}\nevil: 1`))
      const gateway = yield* Gateway.make({ key, keySecondsMax: 0, script: [answered] })
      const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(answer.status, 502)
      assert.include(yield* clean(gateway, answer), "the key contains a line break")
    })
  )
})

describe("a signer", () => {
  it.live("gets each request as it is sent, and its headers take the place of the key", () =>
    Effect.gen(function* () {
      const seen: Array<SigningRequest> = []
      const key: UpstreamKey.Signer = {
        sign: (request) =>
          Effect.sync(() => {
            seen.push(request)
            return {
              authorization: Redacted.make(`AWS4-HMAC-SHA256 ${needle}`),
              "x-amz-security-token": Redacted.make(`token-${needle}`)
            }
          })
      }
      const gateway = yield* Gateway.make({
        key,
        profile: "bedrock",
        script: [answered, echo(400, `token-${needle}`)]
      })
      const answers = []
      for (let index = 0; index < 2; index++) answers.push(yield* gateway.send(Gateway.http(Gateway.chat())))
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        [200, 400]
      )
      const [received] = yield* gateway.upstream.received
      const headers = new Map(received!.headers)
      assert.strictEqual(headers.get("authorization"), `AWS4-HMAC-SHA256 ${needle}`)
      assert.strictEqual(headers.get("x-amz-security-token"), `token-${needle}`)
      const [request] = seen
      assert.deepInclude(request!, {
        method: "POST",
        authority: headers.get("host")!,
        target: received!.target,
        bodySha256: received!.bodyDigest,
        bodyBytes: received!.bodyBytes
      })
      assert.strictEqual(received!.target, "/openai/v1/chat/completions")
      for (const [name, value] of request!.headers) assert.strictEqual(headers.get(name), value, name)
      const { injectedHeaders } = yield* gateway.endpoint.finish
      assert.deepStrictEqual(injectedHeaders, [])
      yield* clean(gateway, ...answers)
    })
  )

  it.live("cannot set a header of the connection or of the proxy, and its failure is not sent on", () =>
    Effect.gen(function* () {
      for (const [headers, says] of [
        [{ host: needle }, "sets a header that it must not set"],
        [{ "content-length": needle }, "sets a header that it must not set"],
        [{ "x-litellm-customer-id": needle }, "sets a header that it must not set"],
        [{ "X-Amz-Date": needle }, "sets a header that it must not set"],
        [{ authorization: `${needle}\r\nevil: 1` }, "contains a line break"],
        [{}, "has no header"]
      ] as const) {
        const key: UpstreamKey.Signer = {
          sign: () =>
            Effect.succeed(
              Object.fromEntries(
                Object.entries(headers).map(([name, value]) => [name, Redacted.make(String(value))])
              )
            )
        }
        const gateway = yield* Gateway.make({ key, profile: "bedrock", script: [answered] })
        const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
        assert.strictEqual(answer.status, 502, answer.text)
        assert.deepStrictEqual(yield* gateway.upstream.received, [])
        assert.include(yield* clean(gateway, answer), says)
      }
    })
  )

  it.live("that does not answer is bounded in time", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        key: { sign: () => Effect.never },
        keyWaitSecondsMax: 0.05,
        profile: "bedrock",
        script: [answered]
      })
      const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(answer.status, 503)
      assert.include(yield* clean(gateway, answer), "did not answer within 0.05 s")
    })
  )
})

describe("the gateway's own key", () => {
  it.live("never reaches the threads that serve runs if each run has a key of its own", () =>
    Effect.gen(function* () {
      const said = yield* ThreadMessages.acquire
      const admin = keyNumber(1)
      const options = { key: Redacted.make(admin), script: [answered] } as const
      for (const fallback of ["none", "masterKey"] as const) {
        const keys = yield* RunKeys.makeMemory()
        const gateway = yield* Gateway.make({ ...options, runKeys: { keys, fallback } })
        assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
        yield* gateway.endpoint.finish
      }
      assert.include(said(), "sk-run-", "the key of a run is seen on its way")
      assert.notInclude(said(), admin)
      // Without keys of runs, it must reach them.
      const shared = yield* Gateway.make(options)
      assert.strictEqual((yield* shared.send(Gateway.http(Gateway.chat()))).status, 200)
      assert.include(said(), admin)
    })
  )
})

describe("a key of the run alone", () => {
  const spent = (status: number, message = "Budget has been exceeded! Current cost: 2.5, Max budget: 2.0") =>
    ({
      _tag: "Error",
      status,
      body: JSON.stringify({ error: { message, type: "budget_exceeded", param: null, code: String(status) } })
    }) as const

  it.live("ends the run's calls like the run's own budget, if its budget is spent at the upstream", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        runKeys: { keys: yield* RunKeys.makeMemory() },
        llm: { budget: { costUsdMax: 1, onExhausted: "refuse" } },
        script: [spent(422), answered]
      })
      for (let index = 0; index < 2; index++) {
        const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
        assert.strictEqual(answer.status, 429, answer.text)
        assert.strictEqual(answer.headers.get("x-should-retry"), "false")
        const { code, message, type } = JSON.parse(answer.body).error
        assert.deepStrictEqual([code, type], ["insufficient_quota", "insufficient_quota"])
        assert.match(message, /budget of 2 US dollars is spent/u)
        assert.notInclude(answer.text, "exceeded")
      }
      // The second call was refused by the gateway itself.
      assert.lengthOf(yield* gateway.upstream.received, 1)
      const exhaustion = { budget: "cost_usd", limit: 2, used: 2.5 } as const
      assert.deepStrictEqual(gateway.observed, [{ _tag: "BudgetExhausted", exhaustion }])
      const { calls, exhausted } = yield* gateway.endpoint.finish
      assert.deepStrictEqual(exhausted, exhaustion)
      assert.deepStrictEqual(
        calls.map(({ outcome }) => outcome),
        ["completed", "refused"]
      )
      const audit = yield* gateway.audit
      assert.include(audit, '"type":"budget.exhausted"')
      assert.include(audit, "upstream 422")
    })
  )

  it.live("does not take the budget of its account for the run's", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        runKeys: { keys: yield* RunKeys.makeMemory() },
        script: [spent(422, "ExceededBudget: End User=a over budget. Spend=2.5, Budget=2.0"), answered]
      })
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 422)
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      assert.deepStrictEqual(gateway.observed, [])
    })
  )

  it.live("that is shared does not take the budget of the gateway's key for the run's", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [spent(422), answered] })
      const first = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(first.status, 422)
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      assert.deepStrictEqual(gateway.observed, [])
    })
  )
})
