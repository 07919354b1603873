/** Tests which requests are refused, with which status, and that nothing is created for them. */
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { asked, lasting, question, serve, type WorldOptions } from "./ServerWorld.ts"

const sandboxless = { allowSandbox: false }
const past = { expiresAt: new Date(-1) }

/** Requests, with the grant and the server, and the expected answer. */
const refused: ReadonlyArray<{
  readonly what: string
  readonly status: number
  readonly code: string
  readonly reason: string
  readonly body?: object
  readonly headers?: Record<string, string>
  readonly grant?: object
  readonly world?: WorldOptions
}> = [
  { what: "an expired grant", grant: past, status: 403, code: "authz_denied", reason: "GrantExpired" },
  {
    what: "a wildcard scope without allowSandbox",
    grant: sandboxless,
    status: 403,
    code: "authz_denied",
    reason: "SandboxNotAllowed"
  },
  {
    what: "a scope for another graph",
    grant: { scopes: ["graph:execute:sandbox:talker"] },
    status: 403,
    code: "authz_denied",
    reason: "GrantScopeMismatch"
  },
  {
    what: "a model that the server does not offer",
    body: { ...question, model: "o1-pro-2025-03-19" },
    status: 403,
    code: "authz_denied",
    reason: "ModelNotGranted"
  },
  {
    what: "a tool with a grant that permits none",
    body: { ...question, toolIds: ["core__metrics_query", "core__get_current_time"] },
    grant: { permissions: {} },
    status: 403,
    code: "authz_denied",
    reason: "ToolNotGranted"
  },
  {
    what: "a tool that this server does not have",
    body: { ...question, toolIds: ["core__no_such_tool"] },
    status: 400,
    code: "invalid_request",
    reason: "InvalidSpec"
  },
  {
    what: "a repository with a grant that permits another",
    body: { ...question, repository: { url: "https://github.com/acme/app" } },
    grant: { permissions: { repositories: ["https://github.com/acme/other"] } },
    status: 403,
    code: "authz_denied",
    reason: "RepositoryNotGranted"
  },
  {
    what: "a run while sandboxes are disabled",
    world: { enabled: false },
    status: 403,
    code: "policy_denied",
    reason: "SandboxDisabled"
  },
  {
    what: "an unknown agent",
    body: { ...question, graphId: "sandbox:nobody" },
    status: 404,
    code: "not_found",
    reason: "AgentNotFound"
  },
  {
    what: "an unknown graph namespace",
    body: { ...question, graphId: "other:agent" },
    status: 404,
    code: "not_found",
    reason: "GraphNamespaceUnknown"
  },
  {
    what: "an invalid graph ID",
    body: { ...question, graphId: "agent" },
    status: 400,
    code: "invalid_request",
    reason: "BodyInvalid"
  },
  {
    what: "an empty list of messages",
    body: { ...question, messages: [] },
    status: 400,
    code: "invalid_request",
    reason: "BodyInvalid"
  },
  {
    what: "a body that is nested too deep for the thread that serves everyone",
    body: { ...question, nested: JSON.parse(`${"[".repeat(100)}${"]".repeat(100)}`) as unknown },
    status: 400,
    code: "invalid_request",
    reason: "BodyTooComplex"
  },
  {
    what: "an account in the body",
    body: { ...question, billingAccountId: "other" },
    status: 400,
    code: "invalid_request",
    reason: "BodyInvalid"
  },
  {
    what: "a personality that the agent does not have",
    body: { ...question, personality: "pirate" },
    status: 400,
    code: "invalid_request",
    reason: "CapabilityMissing"
  },
  {
    what: "a repository for an agent without tools",
    body: { ...question, repository: { url: "https://git.example/a/b" } },
    status: 400,
    code: "invalid_request",
    reason: "CapabilityMissing",
    world: { repositories: Repositories.layerNoop }
  },
  {
    what: "a run ID together with an idempotency key",
    body: { ...question, runId: "run-000000000001" },
    headers: { "idempotency-key": "key" },
    status: 400,
    code: "invalid_request",
    reason: "RunNamedTwice"
  }
]

const counting = () => {
  const seen = { started: 0 }
  const program: Program = () => Effect.sync(() => (seen.started += 1)).pipe(Effect.as(0))
  return { program, seen }
}

describe("refusals", () => {
  for (const { body = question, code, grant, headers, reason, status, what, world } of refused) {
    it.effect(`refuses ${what} with ${status} ${reason}, and creates nothing`, () =>
      Effect.gen(function* () {
        const { program, seen } = counting()
        const server = yield* serve({ ...world, program })
        const caller = yield* server.caller(grant)
        const answer = yield* caller.post(body, headers)
        assert.deepStrictEqual(
          [answer.status, answer.body.error.code, answer.body.error.reason],
          [status, code, reason]
        )
        assert.deepStrictEqual(Object.keys(answer.body.error), ["code", "reason", "message"])
        assert.strictEqual(seen.started, 0)
        assert.deepStrictEqual(yield* server.store.list, [])
        assert.deepStrictEqual(yield* server.roster.list, [])
      })
    )
  }

  it.effect.each<[string, string | undefined, string]>([
    ["no token", undefined, "GrantMissing"],
    ["a token of no grant", "Bearer cgs_nothing", "GrantNotFound"],
    ["another scheme", "Basic YTpi", "GrantNotFound"],
    ["an empty token", "Bearer ", "GrantNotFound"]
  ])("answers %s with 403 on every route, before any other check", ([, authorization, reason]) =>
    Effect.gen(function* () {
      const { program, seen } = counting()
      const { store, url } = yield* serve({ program })
      const headers: Record<string, string> = authorization === undefined ? {} : { authorization }
      const answers = yield* Effect.all([
        asked(`${url}/api/v1/ai/agents`, { headers }),
        asked(`${url}/api/v1/ai/chat`, { method: "POST", headers, body: "no JSON" }),
        asked(`${url}/api/v1/runs`, { headers }),
        asked(`${url}/api/v1/runs/run-000000000001`, { headers }),
        asked(`${url}/api/v1/runs/run-000000000001`, { method: "DELETE", headers })
      ])
      for (const { body, headers, status } of answers) {
        assert.deepStrictEqual([status, body.error.code, body.error.reason], [403, "authz_denied", reason])
        assert.strictEqual(headers.get("www-authenticate"), 'Bearer realm="cogni-sandbox"')
      }
      assert.strictEqual(seen.started, 0)
      assert.deepStrictEqual(yield* store.list, [])
    })
  )

  it.effect("answers a header without Bearer with the required form", () =>
    Effect.gen(function* () {
      const { url } = yield* serve()
      for (const authorization of ["cgs_nothing", "Basic YTpi"]) {
        const { body, status } = yield* asked(`${url}/api/v1/runs`, { headers: { authorization } })
        assert.deepStrictEqual(
          [status, body.error.message],
          [403, "the Authorization header has no Bearer token. Send: Authorization: Bearer TOKEN"]
        )
      }
    })
  )

  it.effect("describes the problems of an invalid body in plain words", () =>
    Effect.gen(function* () {
      const caller = yield* (yield* serve()).caller()
      const { messages: _messages, ...silent } = question
      for (const [body, says] of [
        [{ ...question, messages: [] }, "messages: at least one message is required"],
        [silent, "messages: is required"],
        [{ ...question, billingAccountId: "other" }, "billingAccountId: is not a known field"]
      ] as const) {
        const { message } = (yield* caller.post(body)).body.error
        assert.strictEqual(message, `the body is invalid: ${says}`)
      }
    })
  )

  it.effect("names the flag that adds a permission which the grant lacks", () =>
    Effect.gen(function* () {
      const server = yield* serve()
      for (const [grant, flag] of [
        [sandboxless, "grants create --allow-sandbox"],
        [{ scopes: ["graph:execute:sandbox:talker"] }, `grants create --graph ${question.graphId}`]
      ] as const) {
        const caller = yield* server.caller(grant)
        assert.include((yield* caller.post(question)).body.error.message, flag)
      }
    })
  )

  it.effect("refuses an expired grant on every route that reads", () =>
    Effect.gen(function* () {
      const server = yield* serve()
      const caller = yield* server.caller(past)
      for (const path of ["/api/v1/ai/agents", "/api/v1/runs", "/api/v1/runs/run-000000000001"]) {
        const { body, status } = yield* caller.get(path)
        assert.deepStrictEqual([path, status, body.error.reason], [path, 403, "GrantExpired"])
      }
    })
  )

  it.effect("refuses a revoked grant immediately", () =>
    Effect.gen(function* () {
      const server = yield* serve()
      const caller = yield* server.caller()
      assert.strictEqual((yield* caller.get("/api/v1/ai/agents")).status, 200)
      yield* server.grants.revoke(caller.grantId)
      const { body, status } = yield* caller.post(question)
      assert.deepStrictEqual([status, body.error.reason], [403, "GrantRevoked"])
    })
  )

  it.effect("answers invalid and truncated JSON with 400, without repeating it", () =>
    Effect.gen(function* () {
      const { caller: callerOf, url } = yield* serve()
      const { headers } = yield* callerOf()
      for (const body of ["{", "hush-hush", '{"graphId":"hush-hush","messages":[{"role":"hush-hush"}]}']) {
        const answer = yield* asked(`${url}/api/v1/ai/chat`, { method: "POST", headers, body })
        assert.strictEqual(answer.status, 400)
        assert.notInclude(JSON.stringify(answer.body), "hush-hush")
      }
    })
  )

  it.effect("answers a second request for a run ID with 409 and the ID of the first", () =>
    Effect.gen(function* () {
      const server = yield* serve()
      const caller = yield* server.caller()
      const first = yield* caller.chat(question, { "idempotency-key": "monday" })
      assert.strictEqual(first.status, 200)
      const again = yield* caller.post(question, { "idempotency-key": "monday" })
      assert.deepStrictEqual([again.status, again.body.error.reason], [409, "RunIdInUse"])
      assert.include(again.body.error.message, first.runId)
      const other = yield* server.caller({ billingAccountId: "other" })
      const theirs = yield* other.chat(question, { "idempotency-key": "monday" })
      assert.strictEqual(theirs.status, 200)
      assert.notStrictEqual(theirs.runId, first.runId)
    })
  )

  it.effect("refuses the ID of a run that is under way", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting })
      const caller = yield* server.caller()
      const body = { ...question, runId: "run-000000000001" }
      yield* caller.open(body)
      const again = yield* caller.post(body)
      assert.deepStrictEqual([again.status, again.body.error.reason], [409, "RunUnderWay"])
    })
  )

  it.effect("answers a method that a path does not have with 405, and with those that it has", () =>
    Effect.gen(function* () {
      const { url } = yield* serve()
      for (const [method, path, allow] of [
        ["GET", "/api/v1/ai/chat", "POST"],
        ["GET", "/api/v1/ai/chat?a=b", "POST"],
        ["PUT", "/api/v1/runs/run-000000000001", "DELETE, GET, HEAD"],
        ["POST", "/api/v1/ai/agents", "GET, HEAD"]
      ] as const) {
        const { body, headers, status } = yield* asked(`${url}${path}`, { method })
        assert.deepStrictEqual([status, body.error.reason], [405, "MethodNotAllowed"], path)
        assert.strictEqual(headers.get("allow"), allow)
        assert.include(body.error.message, `does not answer ${method}. Use ${allow.split(", ").join(" or ")}`)
      }
    })
  )

  it.effect("reports an unknown path and an invalid query in the same format", () =>
    Effect.gen(function* () {
      const server = yield* serve()
      const caller = yield* server.caller()
      const nowhere = yield* caller.get("/api/v1/nothing")
      assert.deepStrictEqual([nowhere.status, nowhere.body.error.reason], [404, "RouteNotFound"])
      assert.include(nowhere.body.error.message, "docs/guides/server.md")
      const odd = yield* caller.get("/api/v1/runs?limit=a")
      assert.deepStrictEqual([odd.status, odd.body.error.reason], [400, "RequestInvalid"])
    })
  )
})
