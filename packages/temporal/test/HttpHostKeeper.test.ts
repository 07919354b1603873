/** Answers of a keeper, as a worker understands them. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { HttpClient, HttpClientResponse } from "effect/http"
import * as HttpHostKeeper from "../src/HttpHostKeeper.ts"

/** A keeper whose server always gives this answer. */
const answering = (answer: unknown) =>
  HttpHostKeeper.make({ url: "http://127.0.0.1:1", token: Redacted.make("cgs_none") }).pipe(
    Effect.provideService(
      HttpClient.HttpClient,
      HttpClient.make((request) =>
        Effect.succeed(HttpClientResponse.fromWeb(request, new Response(JSON.stringify(answer))))
      )
    )
  )

const view = (over: object) => ({ runId: "run-keeper-1", status: "succeeded", timings: [], ...over })

const events = { count: 3, sha256: "none" }

describe("the view of a run", () => {
  for (const [what, over, status, reason] of [
    ["an agent that succeeded", { events }, "succeeded", undefined],
    ["a run whose commits are still delivered", { isUnderWay: true }, "running", undefined],
    ["a run that starts", { status: "starting", isUnderWay: true }, "starting", undefined],
    ["a task that succeeded", { status: "closed", events }, "succeeded", undefined],
    [
      "a task that failed",
      { status: "closed", events, error: { reason: "StepsExhausted" } },
      "failed",
      "StepsExhausted"
    ],
    [
      "a task whose commits are still delivered",
      { status: "closed", isUnderWay: true },
      "running",
      undefined
    ],
    ["a task whose server ended before it could tell", { status: "closed" }, "closed", undefined]
  ] as const)
    it.effect(`is ${status} for ${what}`, () =>
      Effect.gen(function* () {
        const keeper = yield* answering(view(over))
        assert.deepInclude(yield* keeper.describe("run-keeper-1"), { status, reason })
      })
    )
})

describe("a delivery", () => {
  const relay = { status: "failed", origin: "https://example.com", branch: "sandbox/run-keeper-1" }

  it.effect("that may succeed later fails for now", () =>
    Effect.gen(function* () {
      const problem = { reason: "PushRefused", message: "it is away", isRetryable: true }
      const keeper = yield* answering({ runId: "run-keeper-1", relay, problem })
      const error = yield* Effect.flip(keeper.deliver("run-keeper-1"))
      assert.deepInclude(error, { _tag: "KeeperRefused", reason: "PushRefused", isForNow: true })
    })
  )

  it.effect("that cannot succeed is final", () =>
    Effect.gen(function* () {
      const problem = { reason: "PolicyRefused", message: "it changes a workflow", isRetryable: false }
      const keeper = yield* answering({ runId: "run-keeper-1", relay, problem })
      assert.strictEqual(yield* keeper.deliver("run-keeper-1"), "failed")
    })
  )
})
