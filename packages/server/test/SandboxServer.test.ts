/** Tests the server over HTTP, with in-memory layers. */
import * as Await from "../../../test/harness/Await.ts"
import * as RecordingTracer from "../../../test/harness/RecordingTracer.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Validator } from "@seriousme/openapi-schema-validator"
import { Effect, Fiber, Logger, Option, References, Tracer } from "effect"
import { TestClock } from "effect/testing"
import { inspect } from "node:util"
import { answering, asked, question, serve } from "./ServerWorld.ts"

describe("catalog", () => {
  it.effect("is complete, sorted by name, and has an ETag", () =>
    Effect.gen(function* () {
      const world = yield* serve()
      const caller = yield* world.caller()
      const { body, headers, status } = yield* caller.get("/api/v1/ai/agents")
      assert.strictEqual(status, 200)
      assert.deepStrictEqual(
        body.agents.map(({ agentId, graphId }: any) => [agentId, graphId]),
        [
          ["sandbox:agent", "sandbox:agent"],
          ["sandbox:talker", "sandbox:talker"]
        ]
      )
      assert.strictEqual(headers.get("cache-control"), "private, max-age=60")
      const again = yield* caller.get("/api/v1/ai/agents", { "if-none-match": headers.get("etag")! })
      assert.deepStrictEqual([again.status, again.body], [304, ""])
    })
  )

  it.effect("is available while sandboxes are disabled", () =>
    Effect.gen(function* () {
      const world = yield* serve({ enabled: false })
      const caller = yield* world.caller({ allowSandbox: false })
      assert.strictEqual((yield* caller.get("/api/v1/ai/agents")).status, 200)
    })
  )
})

describe("chat", () => {
  it.effect("streams the events of a run, each with its type and number", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      const { events, headers, messages, runId, status } = yield* caller.chat()
      assert.strictEqual(status, 200)
      assert.strictEqual(headers.get("content-type"), "text/event-stream; charset=utf-8")
      assert.strictEqual(headers.get("cache-control"), "no-cache, no-transform")
      assert.deepStrictEqual(
        events.filter(({ type }) => type !== "status").map(({ type }) => type),
        ["text_delta", "assistant_final", "usage_report", "done"]
      )
      assert.deepStrictEqual(
        messages.map(({ event, id }) => [event, id]),
        events.map(({ type }, at) => [type, String(at + 1)])
      )
      const view = yield* caller.get(`/api/v1/runs/${runId}`)
      assert.containSubset(view.body, {
        runId,
        status: "succeeded",
        graphId: "sandbox:agent",
        model: "gpt",
        exitCode: 0
      })
      assert.strictEqual(view.body.events.count, events.length)
    })
  )

  it.effect("accepts graphName instead of graphId, and not both", () =>
    Effect.gen(function* () {
      const caller = yield* (yield* serve({ program: answering("Lima") })).caller()
      const { graphId, ...rest } = question
      assert.strictEqual((yield* caller.chat({ ...rest, graphName: graphId })).status, 200)
      assert.strictEqual((yield* caller.post({ ...question, graphName: graphId })).status, 400)
    })
  )

  it.effect("refuses an account in the body, because the grant's account pays", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      const { body, status } = yield* caller.post({ ...question, billingAccountId: "other", caller: {} })
      assert.deepStrictEqual([status, body.error.reason], [400, "BodyInvalid"])
      const { runId } = yield* caller.chat()
      const record = yield* world.store.get(runId as any)
      assert.strictEqual(record?.spec.llm?.identity.billingAccountId, "acct")
    })
  )
})

describe("operation", () => {
  it.effect("reports liveness and readiness without a token", () =>
    Effect.gen(function* () {
      const { operatorUrl: url } = yield* serve()
      assert.deepStrictEqual((yield* asked(`${url}/health`)).body, { status: "ok" })
      const { body, status } = yield* asked(`${url}/health/ready`)
      assert.deepStrictEqual([status, body], [200, { status: "ready", checks: { store: "ok" } }])
    })
  )

  it.effect("is not ready if a probe fails or times out, and runs probes at most once a second", () =>
    Effect.gen(function* () {
      let times = 0
      const failing = Effect.suspend(() => Effect.fail(`away ${(times += 1)}`))
      const { operatorUrl: url } = yield* serve({
        probes: [
          { name: "engine", check: failing },
          { name: "silent", check: Effect.never }
        ]
      })
      const ready = `${url}/health/ready`
      const first = yield* Effect.forkChild(asked(ready), { startImmediately: true })
      yield* Await.until(
        "it was asked once",
        Effect.sync(() => times === 1)
      )
      yield* TestClock.adjust("3 seconds")
      const { body, status } = yield* Fiber.join(first)
      assert.deepStrictEqual(
        [status, body],
        [503, { status: "not_ready", checks: { store: "ok", engine: "failing", silent: "failing" } }]
      )
      yield* asked(ready)
      assert.strictEqual(times, 1)
    })
  )

  it.effect("exports counters of runs and requests in the Prometheus format", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: answering("Lima") })
      const caller = yield* server.caller()
      yield* caller.chat()
      yield* caller.post({ ...question, graphId: "sandbox:made-up" })
      yield* caller.get("/api/v1/runs/run-000000000001")
      const { body, headers } = yield* asked(`${server.operatorUrl}/metrics`)
      assert.include(headers.get("content-type")!, "text/plain; version=0.0.4")
      for (const line of [
        "# TYPE sandbox_graph_runs_total counter",
        'sandbox_graph_runs_total{agent="sandbox:agent",status="ok"} 1',
        "# TYPE sandbox_graph_run_duration_seconds histogram",
        'sandbox_graph_run_duration_seconds_bucket{agent="sandbox:agent",le="+Inf"} 1',
        // The library's own metrics.
        'sandbox_runs_started_total{agent="agent"} 1',
        'sandbox_runs_total{agent="agent",status="succeeded"} 1',
        'sandbox_run_duration_seconds_bucket{agent="agent",le="+Inf"} 1',
        'sandbox_run_phase_duration_seconds_bucket{phase="agent",le="+Inf"} 1',
        "sandbox_open 0",
        "sandbox_runs_active 0",
        "sandbox_runs_active_max 32",
        'sandbox_http_requests_total{method="POST",route="/api/v1/ai/chat",status="200"} 1',
        'sandbox_http_requests_total{method="POST",route="/api/v1/ai/chat",status="404"} 1',
        'sandbox_http_requests_total{method="GET",route="/api/v1/runs/{id}",status="404"} 1'
      ]) {
        assert.include(body, `${line}\n`)
      }
      assert.notInclude(body, "made-up")
      assert.notInclude(body, "run-000000000001")
    })
  )

  it.effect("writes a token to no log, no span, no problem and no record", () =>
    Effect.gen(function* () {
      const said: Array<string> = []
      const { spans, tracer } = RecordingTracer.make()
      const logger = Logger.make<unknown, void>(({ cause, message }) => {
        said.push(inspect([message, cause], { depth: 20 }))
      })
      const server = yield* serve({ program: answering("Lima") }).pipe(
        Effect.provide(Logger.layer([logger])),
        Effect.provideService(References.MinimumLogLevel, "All"),
        Effect.provideService(Tracer.Tracer, tracer)
      )
      const caller = yield* server.caller()
      const { runId } = yield* caller.chat(question, { "x-forwarded-access-token": "hush-hush" })
      const refused = yield* caller.post({ ...question, model: 1 })
      yield* caller.get("/api/v1/runs?access_token=hush-hush")
      const unknown = yield* asked(`${server.url}/api/v1/runs`, {
        headers: { authorization: "Bearer cgs_wrong-hush-hush" }
      })
      const all = inspect(
        [said, spans, refused.body, unknown.body, yield* server.store.get(RunId.make(runId))],
        { depth: 20, maxStringLength: null, maxArrayLength: null }
      )
      assert.isAbove(spans.length, 3)
      assert.notInclude(all, caller.token)
      assert.notInclude(all, "hush-hush")
    })
  )

  it.effect("names spans of requests after their route, and makes none for probes and scrapes", () =>
    Effect.gen(function* () {
      const { spans, tracer } = RecordingTracer.make()
      const server = yield* Effect.provideService(serve(), Tracer.Tracer, tracer)
      const caller = yield* server.caller()
      yield* caller.get("/api/v1/runs/run-000000000001")
      yield* caller.get("/made/up")
      yield* asked(`${server.url}/health`)
      for (const path of ["/health", "/health/ready", "/metrics"])
        yield* asked(`${server.operatorUrl}${path}`)
      assert.deepStrictEqual(
        spans.flatMap(({ kind, name }) => (kind === "server" ? [name] : [])),
        ["GET /api/v1/runs/{id}", "GET other"]
      )
    })
  )

  it.effect("are traced in the trace that traceparent names, whatever else the caller asks for", () =>
    Effect.gen(function* () {
      const traceId = "0af7651916cd43dd8448eb211c80319c"
      const spanId = "b7ad6b7169203331"
      for (const [headers, isNamed] of [
        [{ traceparent: `00-${traceId}-${spanId}-01` }, true],
        [{ traceparent: `00-${traceId}-${spanId}-00` }, true],
        [{ b3: "0123456789abcdef-0123456789abcdef-0" }, false],
        [{ "x-b3-traceid": traceId, "x-b3-spanid": spanId, "x-b3-sampled": "0" }, false]
      ] as const) {
        const { spans, tracer } = RecordingTracer.make()
        const server = yield* Effect.provideService(
          serve({ program: answering("Lima") }),
          Tracer.Tracer,
          tracer
        )
        const caller = yield* server.caller()
        const { runId } = yield* caller.chat(question, headers)
        const [request, ...others] = spans
        assert.isTrue(request?.sampled)
        assert.isAbove(others.length, 3)
        assert.isTrue(others.every(({ sampled }) => sampled))
        assert.strictEqual(request?.traceId === traceId, isNamed)
        assert.strictEqual(
          Option.getOrUndefined(request?.parent ?? Option.none())?.spanId === spanId,
          isNamed
        )
        const { body } = yield* caller.get(`/api/v1/runs/${runId}`)
        assert.strictEqual(body.traceId, request?.traceId)
      }
    })
  )
})

describe("description", () => {
  it.effect("is a valid OpenAPI document with these paths", () =>
    Effect.gen(function* () {
      const { operatorUrl: url } = yield* serve()
      const { body, status } = yield* asked(`${url}/openapi.json`)
      assert.strictEqual(status, 200)
      const validated = yield* Effect.promise(() => new Validator().validate(body))
      assert.deepStrictEqual(validated.errors ?? [], [])
      assert.isTrue(validated.valid)
      const operations = Object.entries<any>(body.paths).flatMap(([path, methods]) =>
        Object.entries<any>(methods).map(
          ([method, { responses }]) => `${method} ${path} ${Object.keys(responses).join(" ")}`
        )
      )
      assert.deepStrictEqual(operations, [
        "get /api/v1/ai/agents 200 403 429 503",
        "post /api/v1/ai/chat 200 400 402 403 404 409 413 429 500 503",
        "post /api/v1/runs 202 400 402 403 404 409 413 429 500 503",
        "get /api/v1/runs 200 400 403 429 503",
        "get /api/v1/runs/{id} 200 400 403 404 429 503",
        "delete /api/v1/runs/{id} 202 400 403 404 409 429 503",
        "get /api/v1/runs/{id}/events 200 400 403 404 409 429 503",
        "get /api/v1/runs/{id}/stdout 200 400 403 404 416 429 503",
        "get /api/v1/runs/{id}/stderr 200 400 403 404 416 429 503",
        "get /api/v1/runs/{id}/recording 200 400 403 404 409 429 503",
        "get /api/v1/runs/{id}/calls 200 400 403 404 429 503",
        "get /api/v1/runs/{id}/calls/{callId}/request 200 400 403 404 429 503",
        "get /api/v1/runs/{id}/calls/{callId}/answer 200 400 403 404 429 503",
        "get /api/v1/runs/{id}/tools 200 400 403 404 429 503",
        "get /api/v1/runs/{id}/audit 200 400 403 404 429 503",
        "get /api/v1/runs/{id}/audit/entries 200 400 403 404 429 503",
        "get /api/v1/runs/{id}/answer 200 400 403 404 429 503",
        "get /api/v1/runs/{id}/patch 200 400 403 404 429 503",
        "post /api/v1/runs/{id}/relay/retry 200 400 403 404 409 429 503",
        "get /api/v1/approvals 200 400 403 429 503",
        "get /api/v1/runs/{id}/approvals 200 400 403 404 429 503",
        "post /api/v1/approvals/{id} 200 400 403 404 409 429 503",
        "get /api/v1/grants 200 400 403 404 429 503",
        "get /api/v1/connections 200 400 403 404 429 503",
        "get /api/v1/connections/{id}/uses 200 400 403 404 429 503",
        "post /api/v1/personalities 200 400 403 404 409 413 429 503",
        "patch /api/v1/personalities/{name} 200 400 403 404 409 413 429 503",
        "post /api/v1/skills 200 400 403 404 409 413 429 503",
        "patch /api/v1/skills/{name} 200 400 403 404 409 413 429 503",
        "get /api/v1/threads 200 400 403 429 503",
        "get /api/v1/threads/{key} 200 400 403 404 429 503",
        "delete /api/v1/threads/{key} 200 400 403 404 429 500 503",
        "post /api/v1/sign-in 200 403 429 503",
        "get /api/v1/sign-in 200 403 429 503",
        "delete /api/v1/sign-in 204 403 503",
        "get /api/v1/host 200 403 429 503"
      ])
      // A sign-out needs no valid grant.
      const isOpen = (path: string, method: string) => path === "/api/v1/sign-in" && method === "delete"
      for (const [path, methods] of Object.entries<any>(body.paths))
        for (const [method, operation] of Object.entries<any>(methods))
          assert.deepStrictEqual(operation.security, isOpen(path, method) ? [] : [{ bearer: [] }])
    })
  )

  it.effect("has a page that cannot load anything from other sites", () =>
    Effect.gen(function* () {
      const { operatorUrl: url } = yield* serve()
      const { body, headers, status } = yield* asked(`${url}/docs`)
      assert.strictEqual(status, 200)
      assert.include(headers.get("content-security-policy")!, "default-src 'none'")
      assert.notMatch(body, /<(?:script|link|img|iframe)[^>]+(?:src|href)=/u)
    })
  )
})
