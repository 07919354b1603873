/**
 * The gateway in front of a real LiteLLM: which account it bills, and whether its records match the audit.
 *
 * A sealed agent sends the attempts byte by byte. A first test sends them directly to LiteLLM, where many of them work.
 */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { readFileSync } from "node:fs"
import { dirname } from "node:path"
import type * as RunFigures from "@cogni/sandbox-core/RunFigures"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as Images from "../harness/Images.ts"
import * as LiteLlm from "../harness/LiteLlm.ts"
import * as RawRequests from "../harness/RawRequests.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import { attempts, bodyOf, routes } from "./identityAttempts.ts"

class Ledger extends Context.Service<Ledger, LiteLlm.LiteLlm>()("test/Ledger") {
  static readonly layer = Layer.effect(Ledger, LiteLlm.acquire)
}

const proxy = Layer.unwrap(
  Effect.map(Ledger, ({ masterKey, url }) =>
    GatewayLlmProxy.layer({ url, key: Redacted.make(masterKey), requestsPerSecondMax: 10_000 }).pipe(
      Layer.provide(UsageObserver.layerNone)
    )
  )
)

const layers = RunHarness.layer(proxy).pipe(Layer.provideMerge(Ledger.layer))

const account = "acct-7"

const llm: NonNullable<SandboxSpecInput["llm"]> = {
  model: "chat",
  models: { claude: "claude", priced: "priced", "priced-claude": "priced-claude" },
  identity: { billingAccountId: account, attempt: 2, userId: "user-1", graphId: "sandbox:agent" }
}

/** Sends all requests from one sealed run. */
const sealed = Effect.fnUntraced(function* (requests: ReadonlyArray<RawRequests.Sent>) {
  const { run } = yield* SandboxRunner.SandboxRunner
  const result = yield* run({
    image: Images.runtime,
    ...RawRequests.sending(requests),
    limits: { runtimeSecondsMax: 300 },
    llm
  })
  const answers = RawRequests.answersOf(result.output.stdout.text)
  assert.strictEqual(answers.length, requests.length, result.output.stderr.text)
  return { result, answers }
})

const ofCalls = (rows: ReadonlyArray<LiteLlm.Recorded>, calls: ReadonlyArray<RunFigures.LlmCall>) =>
  rows.filter((row) => calls.some(({ callId }) => callId !== undefined && callId === row.callId))

it.layer(layers, { excludeTestServices: true })("LiteLLM behind the gateway", (it) => {
  it.effect("bills another account for many attempts without the gateway", () =>
    Effect.gen(function* () {
      const { masterKey, recorded, url } = yield* Ledger
      const dangerous = attempts.filter(({ worksUnprotected }) => worksUnprotected === true)
      for (const attempt of dangerous) {
        yield* Effect.promise(() =>
          fetch(`${url}${attempt.path ?? "/v1/chat/completions"}`, {
            method: "POST",
            body: bodyOf(attempt),
            headers: [
              ["authorization", `Bearer ${masterKey}`],
              ["content-type", "application/json"],
              ...(attempt.headers ?? []).map((line): [string, string] => [
                line.slice(0, line.indexOf(":")),
                line.slice(line.indexOf(":") + 1).trim()
              ])
            ]
          }).then((response) => response.text())
        )
      }
      const evil = (rows: ReadonlyArray<LiteLlm.Recorded>) => rows.filter(({ endUser }) => endUser === "evil")
      const rows = yield* recorded((all) => evil(all).length >= dangerous.length)
      assert.strictEqual(evil(rows).length, dangerous.length)
      assert.isAtLeast(dangerous.length, 10)
    })
  )

  it.effect("bills the run's account under our call IDs for every attempt of a sealed agent", () =>
    Effect.gen(function* () {
      assert.isAtLeast(attempts.length, 60)
      const { recorded, records } = yield* Ledger
      const before = yield* records
      const { answers, result } = yield* sealed(
        attempts.map((attempt) => ({
          name: attempt.name,
          bytes: RawRequests.raw(
            "POST",
            attempt.path ?? "/v1/chat/completions",
            attempt.headers ?? [],
            bodyOf(attempt)
          )
        }))
      )
      const passed = answers.filter(([, status]) => status === 200)
      const refused = answers.filter(([, status]) => status !== 200)
      const calls = result.llm!.calls.filter(({ outcome }) => outcome === "completed")
      assert.strictEqual(calls.length, passed.length, JSON.stringify(refused))
      const rows = (yield* recorded((all) => ofCalls(all, calls).length >= calls.length)).slice(before.length)
      // Exactly these: a row under another ID would bill another account.
      assert.sameMembers(
        rows.map(({ callId }) => callId),
        calls.map(({ callId }) => callId!)
      )
      assert.isAtLeast(passed.length, 50)
      for (const [name, status] of refused) assert.include([400, 404], status, name)
      for (const row of rows) {
        assert.strictEqual(row.endUser, account)
        assert.deepStrictEqual(row.spendLogsMetadata, {
          run_id: result.runId,
          attempt: 2,
          user_id: "user-1",
          graph_id: "sandbox:agent",
          existing_trace_id: null,
          session_id: null,
          trace_user_id: null
        })
        assert.strictEqual(row.status, "success")
        assert.include(["chat", "claude"], row.modelGroup)
      }
      const written = JSON.stringify(rows)
      assert.notInclude(written, "evil")
      const callIds = rows.map(({ callId }) => callId)
      assert.strictEqual(new Set(callIds).size, rows.length)

      // The ledger, the run and the audit agree on each call.
      for (const row of rows) {
        const call = calls.find(({ callId }) => callId === row.callId)!
        assert.strictEqual(call.usage?.inputTokens, row.promptTokens ?? undefined)
        assert.strictEqual(call.usage?.outputTokens, row.completionTokens ?? undefined)
        if (row.modelGroup === "chat") assert.closeTo(call.usage?.costUsd ?? -1, row.cost ?? -2, 1e-9)
      }
      const log = readFileSync(result.llm!.auditPath!)
      const verdict = AuditLog.verify(log, {
        runId: result.runId,
        head: result.llm!.auditHead,
        ended: true
      })
      assert.strictEqual(verdict._tag, "Whole", JSON.stringify(verdict))
      for (const callId of callIds) assert.include(log.toString("utf8"), `"callId":"${callId}"`)
      assert.notInclude(log.toString("utf8"), LiteLlm.masterKey)
      assert.isTrue(dirname(result.llm!.auditPath!).endsWith("/audit"))
    })
  )

  it.effect("refuses every other route, and passes no answer of LiteLLM itself", () =>
    Effect.gen(function* () {
      assert.isAtLeast(routes.length, 100)
      const { records } = yield* Ledger
      const before = (yield* records).length
      const { answers } = yield* sealed(
        routes.map(([method, path]) => ({
          name: `${method} ${path}`,
          bytes: RawRequests.raw(method, path, [], method === "GET" ? "" : '{"model":"chat","messages":[]}')
        }))
      )
      for (const [name, status, text] of answers) {
        assert.include([400, 403, 405], status, name)
        assert.notMatch(text, /litellm|uvicorn|sk-/iu, name)
      }
      assert.strictEqual((yield* records).length, before)
    })
  )

  it.effect("reports the ledger's usage and cost for a stream", () =>
    Effect.gen(function* () {
      const { recorded } = yield* Ledger
      const question = { messages: [{ role: "user", content: "hi" }] }
      const apis = {
        "/v1/chat/completions": { ...question, max_tokens: 50 },
        "/v1/responses": { input: "hi" },
        "/v1/messages": { ...question, max_tokens: 50 }
      }
      const asked = ["priced", "priced-claude"].flatMap((model) =>
        [true, false].flatMap((stream) =>
          Object.entries(apis).map(([path, body]) => ({
            name: `${model} ${path} ${stream ? "streamed" : "whole"}`,
            bytes: RawRequests.raw("POST", path, [], JSON.stringify({ model, stream, ...body }))
          }))
        )
      )
      const { answers, result } = yield* sealed(asked)
      for (const [name, status, text] of answers) {
        assert.strictEqual(status, 200, `${name}: ${text}`)
        assert.notMatch(text, /x-litellm/iu, name)
        assert.strictEqual(text.includes("data: "), name.endsWith("streamed"), name)
      }
      const { calls } = result.llm!
      assert.lengthOf(calls, asked.length)
      const rows = yield* recorded((all) => ofCalls(all, calls).length >= calls.length)
      for (const [index, { callId, usage }] of calls.entries()) {
        const { name } = asked[index]!
        const row = rows.find((one) => one.callId === callId)
        if (row === undefined) return assert.fail(`LiteLLM never recorded ${name}`)
        assert.strictEqual(row.endUser, account, name)
        assert.deepInclude(
          usage,
          { inputTokens: row.promptTokens!, outputTokens: row.completionTokens!, cacheReadTokens: 400 },
          name
        )
        assert.deepInclude(row, { promptTokens: 1000, completionTokens: 50 }, name)
        assert.isAbove(row.cost!, 0.002, name)
        // The last event of this provider has no input, so LiteLLM's cost in it is that of the output alone.
        if (name === "priced-claude /v1/messages streamed") {
          assert.notProperty(usage, "costUsd", name)
          assert.include(answers[index]![2], '"cost"', name)
        } else assert.closeTo(usage?.costUsd ?? -1, row.cost!, 1e-9, name)
      }
    })
  )
})
