/** Tests what a read-only grant may do: each endpoint of the API is decided here, and tried over HTTP. */
import { assert, describe, it } from "@effect/vitest"
import { ServerApi } from "../src/ServerApi.ts"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { asked, lasting, question, serve } from "./ServerWorld.ts"

/**
 * Whether a read-only grant may use an endpoint. `no`: it is refused by its own reason, whatever the request has in it.
 * A new endpoint belongs here. Only `POST` and `DELETE` of a sign-in change something that is the caller's own.
 */
const decided: Readonly<Record<string, "yes" | "no">> = {
  "GET /api/v1/ai/agents": "yes",
  "POST /api/v1/ai/chat": "no",
  "GET /api/v1/approvals": "yes",
  "POST /api/v1/approvals/{id}": "no",
  "GET /api/v1/connections": "yes",
  "GET /api/v1/connections/{id}/uses": "yes",
  "GET /api/v1/grants": "yes",
  "GET /api/v1/host": "yes",
  "GET /api/v1/runs": "yes",
  "POST /api/v1/runs": "no",
  "GET /api/v1/runs/{id}": "yes",
  "DELETE /api/v1/runs/{id}": "no",
  "GET /api/v1/runs/{id}/answer": "yes",
  "GET /api/v1/runs/{id}/approvals": "yes",
  "GET /api/v1/runs/{id}/audit": "yes",
  "GET /api/v1/runs/{id}/audit/entries": "yes",
  "GET /api/v1/runs/{id}/calls": "yes",
  "GET /api/v1/runs/{id}/calls/{callId}/answer": "yes",
  "GET /api/v1/runs/{id}/calls/{callId}/request": "yes",
  "GET /api/v1/runs/{id}/events": "yes",
  "GET /api/v1/runs/{id}/patch": "yes",
  "GET /api/v1/runs/{id}/recording": "yes",
  "POST /api/v1/personalities": "no",
  "PATCH /api/v1/personalities/{name}": "no",
  "POST /api/v1/runs/{id}/relay/retry": "no",
  "GET /api/v1/runs/{id}/stderr": "yes",
  "GET /api/v1/runs/{id}/stdout": "yes",
  "GET /api/v1/runs/{id}/tools": "yes",
  "DELETE /api/v1/sign-in": "yes",
  "GET /api/v1/sign-in": "yes",
  "POST /api/v1/sign-in": "yes",
  "POST /api/v1/skills": "no",
  "PATCH /api/v1/skills/{name}": "no",
  "GET /api/v1/threads": "yes",
  "GET /api/v1/threads/{key}": "yes",
  "DELETE /api/v1/threads/{key}": "no"
}

const endpoints = Object.entries(OpenApi.fromApi(ServerApi).paths).flatMap(([path, item]) =>
  Object.keys(item).map((method) => ({ method: method.toUpperCase(), path }))
)

/** Values for the parts of a path. */
const parts = (runId: string): Readonly<Record<string, string>> => ({
  id: runId,
  callId: "call-1",
  key: "0".repeat(32),
  name: "x"
})

const readOnly = { allowSandbox: true, permissions: { readOnly: true, approve: true, seeGrants: true } }

describe("a read-only grant", () => {
  it("is decided about for each endpoint of the API", () => {
    assert.deepStrictEqual(
      endpoints.map(({ method, path }) => `${method} ${path}`).toSorted(),
      Object.keys(decided).toSorted(),
      "decide in this test whether a read-only grant may use the endpoint"
    )
  })

  it.effect(
    "is refused by each endpoint that changes something, whatever else it allows, and by no other",
    () =>
      Effect.gen(function* () {
        const server = yield* serve({ program: lasting })
        const { runId } = yield* (yield* server.caller()).open(question)
        const { headers } = yield* server.caller(readOnly)
        for (const { method, path } of endpoints) {
          const filled = path.replace(/\{(\w+)\}/gu, (_, part: string) => parts(runId)[part]!)
          const url = `${server.url}${filled}`
          const { reason, status } = yield* Effect.promise(async (signal) => {
            const abort = new AbortController()
            const response = await fetch(url, {
              method,
              headers: { ...headers, "content-type": "application/json" },
              body: method === "POST" || method === "PATCH" ? JSON.stringify(question) : null,
              signal: AbortSignal.any([signal, abort.signal])
            })
            const isJson = response.headers.get("content-type")?.includes("json") === true
            const body: any = isJson ? await response.json() : undefined
            // The events of a run have no end.
            abort.abort()
            return { status: response.status, reason: body?.error?.reason as unknown }
          })
          const found = status === 403 && reason === "GrantReadOnly" ? "no" : "yes"
          const name = `${method} ${path}`
          assert.deepStrictEqual([name, found], [name, decided[name]])
          if (found === "yes") assert.notStrictEqual(status, 403, name)
        }
        assert.lengthOf(yield* server.roster.list, 1)
      })
  )

  it.effect("learns from its sign-in that it may change nothing", () =>
    Effect.gen(function* () {
      const server = yield* serve()
      for (const [over, mayWrite] of [
        [{}, true],
        [readOnly, false]
      ] as const) {
        const { headers } = yield* server.caller(over)
        assert.strictEqual(
          (yield* asked(`${server.url}/api/v1/sign-in`, { headers })).body.grant.mayWrite,
          mayWrite
        )
      }
    })
  )
})
