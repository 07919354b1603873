/** A run's model calls, as spans. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Option } from "effect"
import * as RecordingTracer from "../../../test/harness/RecordingTracer.ts"
import * as CallSpans from "../src/internal/CallSpans.ts"
import type { LlmCall, LlmTraffic } from "../src/RunFigures.ts"

const call: LlmCall = {
  at: "2026-01-02T03:04:05.250Z",
  requestId: "req-1",
  method: "POST",
  path: "/v1/chat/completions",
  status: 200,
  callId: "call-1",
  requestBytes: 1,
  responseBytes: 2,
  durationMs: 1500,
  completed: true,
  outcome: "completed",
  model: "openai/gpt",
  usage: { inputTokens: 11, outputTokens: 5 }
}

const traffic = (calls: ReadonlyArray<LlmCall>): LlmTraffic => ({
  proxy: "gateway",
  upstream: "http://upstream",
  calls,
  callsTotal: calls.length,
  unreadableRows: 0,
  injectedHeaders: []
})

const spansOf = Effect.fnUntraced(function* (calls: ReadonlyArray<LlmCall>, sampled = true) {
  const { spans, tracer } = RecordingTracer.make()
  const parent = tracer.span({
    name: "run",
    parent: Option.none(),
    annotations: Context.empty(),
    links: [],
    startTime: 0n,
    kind: "internal",
    root: true,
    sampled
  })
  yield* CallSpans.make(parent, "gpt", traffic(calls)).pipe(Effect.withTracer(tracer))
  return { parent, spans: spans.slice(1) }
})

describe("CallSpans", () => {
  it.effect("makes a client span of each call below the run, with its start and end", () =>
    Effect.gen(function* () {
      const {
        parent,
        spans: [span]
      } = yield* spansOf([call])
      assert.deepStrictEqual(
        [span?.name, span?.kind, span?.traceId, Option.getOrUndefined(span?.parent ?? Option.none())?.spanId],
        ["chat gpt", "client", parent.traceId, parent.spanId]
      )
      const status = span?.status
      if (status?._tag !== "Ended") return assert.fail("it has not ended")
      const { endTime, startTime } = status
      assert.strictEqual(startTime, BigInt(Date.parse(call.at)) * 1_000_000n)
      assert.strictEqual(endTime - startTime, 1_500_000_000n)
      assert.deepStrictEqual(Object.fromEntries(span?.attributes ?? []), {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "server.address": "upstream",
        "server.port": 80,
        "gen_ai.request.model": "gpt",
        "gen_ai.response.model": "openai/gpt",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 5,
        "sandbox.llm.call.id": "call-1",
        "sandbox.llm.call.outcome": "completed",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions"
      })
    })
  )

  it.effect("omits refused calls, calls without a time, and text that the agent wrote into a path", () =>
    Effect.gen(function* () {
      const { callId: _, ...unsent } = call
      const { outcome: _outcome, ...ofNginx } = call
      const { spans } = yield* spansOf([
        { ...unsent, outcome: "refused", path: "/vermilion" },
        { ...unsent, outcome: "client_aborted" },
        { ...call, at: "vermilion" },
        { ...ofNginx, path: "/v1/messages/count_tokens?vermilion" },
        { ...ofNginx, path: "/vermilion/../v1/responses" }
      ])
      assert.deepStrictEqual(
        spans.map(({ attributes, name }) => [name, attributes.get("url.path")]),
        [
          ["count_tokens gpt", "/v1/messages/count_tokens"],
          ["chat gpt", undefined]
        ]
      )
      assert.notInclude(
        JSON.stringify(spans.map(({ attributes, name }) => [name, ...attributes])),
        "vermilion"
      )
    })
  )

  it.effect("names the provider by the format of the API", () =>
    Effect.gen(function* () {
      const { spans } = yield* spansOf(
        ["/v1/messages", "/v1/responses", "/v1/chat/completions"].map((path) => ({ ...call, path }))
      )
      assert.deepStrictEqual(
        spans.map(({ attributes }) => attributes.get("gen_ai.provider.name")),
        ["anthropic", "openai", "openai"]
      )
    })
  )

  it.effect("does not sample the calls of a run that is not sampled", () =>
    Effect.gen(function* () {
      const { spans } = yield* spansOf([call], false)
      assert.deepStrictEqual(
        spans.map(({ sampled }) => sampled),
        [false]
      )
    })
  )

  it.effect("marks a call that failed or was cut off as an error", () =>
    Effect.gen(function* () {
      const { spans } = yield* spansOf([
        { ...call, status: 500 },
        { ...call, completed: false, outcome: "client_aborted" }
      ])
      assert.deepStrictEqual(
        spans.map(({ attributes, status }) => [
          attributes.get("error.type"),
          status._tag === "Ended" && status.exit._tag
        ]),
        [
          ["500", "Failure"],
          ["client_aborted", "Failure"]
        ]
      )
    })
  )
})
