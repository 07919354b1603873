import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"

const decide = (method: string, target: string, bodyBytes?: number) =>
  RoutePolicy.decide({ method, target, bodyBytes })

describe("RoutePolicy", () => {
  it("allows exactly the listed routes", () => {
    assert.deepStrictEqual(
      RoutePolicy.routes.map(({ method, path }) => `${method} ${path}`),
      [
        "POST /v1/chat/completions",
        "POST /v1/responses",
        "POST /v1/messages",
        "POST /v1/messages/count_tokens",
        "GET /v1/models"
      ]
    )
    for (const route of RoutePolicy.routes) {
      assert.deepStrictEqual(decide(route.method, route.path), { _tag: "Allowed", route, query: "" })
    }
    assert.deepStrictEqual(decide("GET", "/health"), { _tag: "Answered" })
  })

  it.each([
    "/key/generate",
    "/v1/files",
    "/v1/chat/completions/",
    "/v1/chat/completions/../../key/generate",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/%63hat/completions",
    "/v1/chat/completions%3f",
    "/V1/chat/completions",
    "/v1/chat/completions#x",
    "http://upstream/v1/chat/completions",
    "v1/chat/completions",
    "*",
    ""
  ])("refuses the path %s", (target) => {
    assert.deepStrictEqual(decide("POST", target), { _tag: "Refused", status: 403 })
  })

  it("refuses a wrong method, and a body that is too large", () => {
    assert.deepStrictEqual(decide("GET", "/v1/chat/completions"), { _tag: "Refused", status: 405 })
    assert.deepStrictEqual(decide("post", "/v1/chat/completions"), { _tag: "Refused", status: 405 })
    assert.strictEqual(decide("POST", "/v1/responses", RoutePolicy.requestBytesMax)._tag, "Allowed")
    assert.deepStrictEqual(decide("POST", "/v1/responses", RoutePolicy.requestBytesMax + 1), {
      _tag: "Refused",
      status: 413
    })
  })

  it.prop("passes no query except beta=true on Anthropic's paths", [Schema.String], ([query]) => {
    for (const route of RoutePolicy.routes) {
      const decision = decide(route.method, `${route.path}?${query}`)
      assert.isTrue(
        decision._tag === "Allowed" && decision.query === (route.queries.includes(query) ? query : "")
      )
    }
  })

  it("passes beta=true unchanged, and no longer query that contains it", () => {
    assert.deepInclude(decide("POST", "/v1/messages?beta=true"), { query: "beta=true" })
    assert.deepInclude(decide("POST", "/v1/messages?beta=true&key=x"), { query: "" })
    assert.deepInclude(decide("POST", "/v1/chat/completions?beta=true"), { query: "" })
  })

  it.prop(
    "admits only headers that match their pattern, each name once",
    [
      Schema.Array(
        Schema.Tuple([Schema.Literals(["accept", "Anthropic-Version", "anthropic-beta", "x"]), Schema.String])
      )
    ],
    ([headers]) => {
      const admitted = RoutePolicy.admit(headers)
      assert.strictEqual(new Set(admitted.map(([name]) => name)).size, admitted.length)
      for (const [name, value] of admitted) {
        const known = RoutePolicy.clientHeaders.find((header) => header.name === name)
        assert.match(value, new RegExp(`^(?:${known!.pattern})$`, "u"))
      }
    }
  )

  it("admits an accept and a version header, and neither if it occurs twice", () => {
    assert.deepStrictEqual(
      RoutePolicy.admit([
        ["ACCEPT", "text/event-stream"],
        ["anthropic-version", "2023-06-01"]
      ]),
      [
        ["accept", "text/event-stream"],
        ["anthropic-version", "2023-06-01"]
      ]
    )
    assert.deepStrictEqual(
      RoutePolicy.admit([
        ["anthropic-version", "2023-06-01"],
        ["Anthropic-Version", "2023-06-01"],
        ["accept", "text/html"]
      ]),
      [["accept", "*/*"]]
    )
    assert.deepStrictEqual(RoutePolicy.admit([["anthropic-version", "2023-06-01\n"]]), [["accept", "*/*"]])
  })
})
