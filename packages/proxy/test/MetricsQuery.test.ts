import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import type * as Tool from "@cogni/sandbox-loop/Tool"
import { Effect, Redacted, type Scope } from "effect"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import * as MetricsQuery from "../src/tools/MetricsQuery.ts"

const context: Tool.ToolContext = {
  runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
  identity: { billingAccountId: "acct", attempt: 0 },
  requestId: "r1"
}

interface Asked {
  readonly path: string
  readonly parameters: URLSearchParams
  readonly authorization: string | undefined
}

/** Server that answers in Prometheus's format and records its requests. */
const prometheus = (
  answer: (response: ServerResponse, asked: Asked) => void
): Effect.Effect<{ readonly url: string; readonly asked: Array<Asked> }, never, Scope.Scope> =>
  Effect.gen(function* () {
    const asked: Array<Asked> = []
    const listen = (request: IncomingMessage, response: ServerResponse) => {
      let body = ""
      request.on("data", (piece) => {
        body += String(piece)
      })
      request.on("end", () => {
        const one = {
          path: request.url ?? "",
          parameters: new URLSearchParams(body),
          authorization: request.headers.authorization
        }
        asked.push(one)
        answer(response, one)
      })
    }
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer(listen).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
      }),
      (made) =>
        Effect.callback<void>((resume) => {
          made.close(() => resume(Effect.void))
          made.closeAllConnections()
        })
    )
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, asked }
  })

const vector = { resultType: "vector", result: [{ metric: {}, value: [1, "1"] }] }
const success = (response: ServerResponse) =>
  void response.end(JSON.stringify({ status: "success", data: vector }))

const call = (options: MetricsQuery.MetricsQueryOptions, input: unknown) =>
  MetricsQuery.make(options).call(input, context)
const code = (options: MetricsQuery.MetricsQueryOptions, input: unknown) =>
  Effect.map(Effect.flip(call(options, input)), (error) => error.code)

describe("MetricsQuery", () => {
  it.live("queries an instant and a range, with the query as a parameter and the token in a header", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* prometheus(success)
      const options = { url, bearerToken: Redacted.make("token-of-the-host") }
      assert.deepStrictEqual(yield* call(options, { query: "up", time: 5 }), vector)
      yield* call(options, { query: 'rate(x{a="&b"}[5m])', start: 0, end: "60", stepSeconds: 15 })
      assert.deepStrictEqual(
        asked.map(({ path }) => path),
        ["/api/v1/query", "/api/v1/query_range"]
      )
      assert.strictEqual(asked[1]!.parameters.get("query"), 'rate(x{a="&b"}[5m])')
      assert.strictEqual(asked[1]!.parameters.get("step"), "15")
      assert.strictEqual(asked[0]!.authorization, "Bearer token-of-the-host")
    })
  )

  it.live("fails with validation for an invalid query, and with execution for other errors", () =>
    Effect.gen(function* () {
      const wrong = yield* prometheus((response) =>
        response.writeHead(400).end('{"status":"error","errorType":"bad_data","error":"parse error at 3"}')
      )
      const error = yield* Effect.flip(call({ url: wrong.url }, { query: "((" }))
      assert.strictEqual(error.code, "validation")
      assert.match(error.message, /parse error at 3/u)
      const late = yield* prometheus((response) =>
        response.writeHead(503).end('{"status":"error","errorType":"timeout","error":"too slow"}')
      )
      assert.strictEqual(yield* code({ url: late.url }, { query: "up" }), "execution")
    })
  )

  it.live("fails with unavailable if the server is missing, down or not Prometheus", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* code({}, { query: "up" }), "unavailable")
      assert.strictEqual(yield* code({ url: "http://127.0.0.1:1" }, { query: "up" }), "unavailable")
      const page = yield* prometheus((response) => response.end("<html>"))
      assert.strictEqual(yield* code({ url: page.url }, { query: "up" }), "unavailable")
      const endless = yield* prometheus((response) => response.end("x".repeat(5_000_000)))
      assert.strictEqual(yield* code({ url: endless.url }, { query: "up" }), "unavailable")
    })
  )

  it.live("does not follow a redirect, and never shows the token", () =>
    Effect.gen(function* () {
      const elsewhere = yield* prometheus(success)
      const { url } = yield* prometheus((response) =>
        response.writeHead(307, { location: `${elsewhere.url}api/v1/query` }).end()
      )
      const error = yield* Effect.flip(
        call({ url, bearerToken: Redacted.make("token-of-the-host") }, { query: "up" })
      )
      assert.strictEqual(error.code, "unavailable")
      assert.notInclude(error.message, "token-of-the-host")
      assert.deepStrictEqual(elsewhere.asked, [])
    })
  )

  it.live("times out if the server never answers", () =>
    Effect.gen(function* () {
      const { url } = yield* prometheus(() => undefined)
      assert.strictEqual(yield* code({ url, runtimeSecondsMax: 1 }, { query: "up" }), "timeout")
    })
  )

  it.live("refuses a range that is incomplete, reversed or has too many points", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* prometheus(success)
      for (const range of [
        { start: 0, end: 60 },
        { start: 60, end: 0, stepSeconds: 1 },
        { start: 0, end: 86_400_000, stepSeconds: 1 },
        { start: "soon", end: "later", stepSeconds: 1 }
      ]) {
        assert.strictEqual(yield* code({ url }, { query: "up", ...range }), "validation")
      }
      assert.strictEqual(yield* code({ url }, { query: "" }), "validation")
      assert.strictEqual(yield* code({ url }, { query: "up", path: "/api/v1/admin" }), "validation")
      assert.deepStrictEqual(asked, [])
    })
  )
})
