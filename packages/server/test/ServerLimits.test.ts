/** Tests every limit of the server. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import {
  AccountBusy,
  HostFailed,
  InsufficientCredits,
  StoreUnavailable
} from "@cogni/sandbox-core/SandboxReason"
import * as ServerLimits from "@cogni/sandbox-server/ServerLimits"
import { answering, asked, lasting, question, serve } from "./ServerWorld.ts"

const account = { billingAccountId: "acct", detail: "it is empty", remedy: "Pay" }

describe("ServerLimits", () => {
  it.effect("answers a body above the limit with 413, with or without Content-Length", () =>
    Effect.gen(function* () {
      const { caller: callerOf, url } = yield* serve({ limits: { bodyBytesMax: 1000 } })
      const caller = yield* callerOf()
      const large = { ...question, messages: [{ role: "user", content: "x".repeat(1000) }] }
      const said = yield* caller.post(large)
      assert.deepStrictEqual([said.status, said.body.error.reason], [413, "BodyTooLarge"])
      const bytes = new TextEncoder().encode(JSON.stringify(large))
      const streamed = yield* asked(`${url}/api/v1/ai/chat`, {
        method: "POST",
        headers: caller.headers,
        duplex: "half",
        body: new ReadableStream({
          pull: (controller) => {
            controller.enqueue(bytes)
            controller.close()
          }
        })
      } as RequestInit)
      assert.deepStrictEqual([streamed.status, streamed.body.error.code], [413, "too_large"])
    })
  )

  it.effect("accepts 3 MB of history, and refuses 10 MB with a clear message", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: answering("Lima") })
      const caller = yield* server.caller()
      const history = (words: number) => {
        const messages = Array.from({ length: 999 }, (_, at) => ({
          role: at % 2 === 0 ? "user" : "assistant",
          content: "word ".repeat(words)
        }))
        return { ...question, messages: [...messages, { role: "user", content: "Where?" }] }
      }
      const { events, status } = yield* caller.chat(history(600))
      assert.strictEqual(status, 200)
      assert.include(
        events.map(({ type }) => type),
        "assistant_final"
      )
      const large = history(2100)
      assert.isAbove(JSON.stringify(large).length, 10_000_000)
      const refused = yield* caller.post(large)
      assert.deepStrictEqual([refused.status, refused.body.error.code], [400, "invalid_request"])
      assert.include(refused.body.error.message, "4194304 bytes")
    })
  )

  it.effect("answers a grant above its rate of runs with 429 and Retry-After", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: answering("Lima"), limits: { runsPerMinutePerGrantMax: 2 } })
      const caller = yield* server.caller()
      assert.strictEqual((yield* caller.chat()).status, 200)
      assert.strictEqual((yield* caller.chat()).status, 200)
      const { body, headers, status } = yield* caller.post(question)
      assert.deepStrictEqual([status, body.error.reason], [429, "TooFast"])
      assert.strictEqual(headers.get("retry-after"), "30")
      const other = yield* server.caller()
      assert.strictEqual((yield* other.chat()).status, 200)
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual((yield* caller.chat()).status, 200)
    })
  )

  it.effect("limits the rate of requests of any kind", () =>
    Effect.gen(function* () {
      const server = yield* serve({ limits: { requestsPerMinutePerGrantMax: 3 } })
      const caller = yield* server.caller()
      const statuses = yield* Effect.forEach([1, 2, 3, 4], () => caller.get("/api/v1/ai/agents"))
      assert.deepStrictEqual(
        statuses.map(({ status }) => status),
        [200, 200, 200, 429]
      )
    })
  )

  it.effect("limits concurrent runs per grant with 429, and of all grants with 503", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting, limits: { runsPerGrantMax: 2, runsMax: 3 } })
      const caller = yield* server.caller()
      const other = yield* server.caller()
      const first = yield* caller.open(question)
      yield* caller.open(question)
      const third = yield* caller.post(question)
      assert.deepStrictEqual([third.status, third.body.error.reason], [429, "TooManyRuns"])
      assert.isAbove(Number(third.headers.get("retry-after")), 0)
      yield* other.open(question)
      const fourth = yield* other.post(question)
      assert.deepStrictEqual([fourth.status, fourth.body.error.reason], [503, "ServerFull"])
      assert.isAbove(Number(fourth.headers.get("retry-after")), 0)
      // Another run may start once nothing is left of one.
      yield* caller.delete(`/api/v1/runs/${first.runId}`)
      yield* Effect.promise(() => first.response.text())
      yield* server.left(first.runId)
      yield* caller.open(question)
    })
  )

  it.effect.each([
    [402, new InsufficientCredits({ ...account, retrySeconds: 3600 }), "insufficient_credits", "3600"],
    [402, new InsufficientCredits(account), "insufficient_credits", null],
    [429, new AccountBusy({ ...account, retrySeconds: 10 }), "rate_limit", "10"],
    [503, new StoreUnavailable({ detail: "is gone", remedy: "Start it" }), "unavailable", null]
  ] as const)("answers with %s before anything starts if the account may not start a run", (row) =>
    Effect.gen(function* () {
      const [status, refusal, code, retryAfter] = row
      const server = yield* serve({
        program: () => Effect.die("a sandbox was made"),
        admissions: { check: () => Effect.fail(refusal), admit: () => Effect.die("a run was made") }
      })
      const caller = yield* server.caller()
      const { body, headers, status: said } = yield* caller.post(question)
      assert.strictEqual(said, status)
      assert.deepStrictEqual(body.error, { code, reason: refusal._tag, message: refusal.message })
      assert.strictEqual(headers.get("retry-after"), retryAfter)
      assert.deepStrictEqual(yield* server.store.list, [])
    })
  )

  it.effect("answers with 503 and Retry-After while the run store is unavailable", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: answering("Lima") })
      const caller = yield* server.caller()
      const away = new StoreUnavailable({ detail: "cannot be reached", remedy: "Start it" })
      Object.assign(server.store, { search: () => Effect.fail(away), describe: () => Effect.fail(away) })
      const answers = [
        yield* caller.get("/api/v1/runs"),
        yield* caller.get("/api/v1/runs/run-retryafter01"),
        yield* caller.post(question, { "idempotency-key": "once" })
      ]
      for (const { body, headers, status } of answers) {
        assert.deepStrictEqual([status, body.error.reason], [503, "StoreUnavailable"])
        assert.isAbove(Number(headers.get("retry-after")), 0)
      }
    })
  )

  it.effect(
    "answers with 503 and no Retry-After if the disk of the run store is full, and never with 400",
    () =>
      Effect.gen(function* () {
        const server = yield* serve({ program: answering("Lima") })
        const caller = yield* server.caller()
        const full = new HostFailed({
          path: "/var/lib/secret-place",
          problem: "no_space",
          detail: "cannot be used",
          remedy: "Free disk space"
        })
        Object.assign(server.store, { search: () => Effect.fail(full), describe: () => Effect.fail(full) })
        for (const path of ["/api/v1/runs", "/api/v1/runs/run-retryafter01"]) {
          const { body, headers, status } = yield* caller.get(path)
          assert.deepStrictEqual(
            [status, body.error.code, body.error.reason],
            [503, "unavailable", "HostFailed"]
          )
          assert.isNull(headers.get("retry-after"))
          assert.notInclude(JSON.stringify(body), "secret-place")
        }
      })
  )

  it.effect("applies a grant's own limit of concurrent runs below the server's", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting, limits: { runsPerGrantMax: 8 } })
      const caller = yield* server.caller({ permissions: { concurrentRunsMax: 1 } })
      yield* caller.open(question)
      const second = yield* caller.post(question)
      assert.deepStrictEqual([second.status, second.body.error.code], [429, "rate_limit"])
      assert.isAbove(Number(second.headers.get("retry-after")), 0)
    })
  )

  it("rejects invalid limits when the server is created", () => {
    assert.throws(() => ServerLimits.make({ runsMax: 0 }))
    assert.throws(() => ServerLimits.make({ bodyBytesMax: 1.5 }))
  })
})
