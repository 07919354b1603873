/** Tests what a run called, its audit, and repeated deliveries, over HTTP: with hostile text in every field. */
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as Await from "../../../test/harness/Await.ts"
import type { MemoryProxyOptions } from "@cogni/sandbox-core/LlmProxy"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { BranchName } from "@cogni/sandbox-git-relay/Refs"
import { RepositoryUnavailable } from "@cogni/sandbox-graph-provider/RepositoryUse"
import * as Ledger from "@cogni/sandbox-ledger/Ledger"
import { entryOf, runOf } from "../../ledger/src/testing/LedgerSamples.ts"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as RunAudits from "@cogni/sandbox-proxy/RunAudits"
import * as Deliveries from "@cogni/sandbox-server/Deliveries"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import type { Draft } from "./AuditFile.ts"
import { callStarted, toolCalled } from "./AuditDrafts.ts"
import { answering, lasting, question, serve } from "./ServerWorld.ts"

const runId = RunId.make("run-00000000000a")
const at = "2026-01-01T00:00:00.000Z"
const hostile = `<img src=x onerror=alert(1)>\u001b[2J${"x".repeat(9000)}`

const usage = {
  calls: 1,
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  callsWithoutUsage: 0,
  callsWithoutCost: 0
}

const drafts: ReadonlyArray<Draft> = [
  {
    type: "run.opened",
    runId,
    proxy: "gateway",
    upstream: "u",
    carrier: "c",
    models: [],
    identity: undefined,
    budget: undefined,
    tools: [],
    packages: undefined,
    canaries: "off"
  },
  { ...callStarted("call-1", hostile), path: hostile } as Draft,
  toolCalled("r-2", hostile),
  {
    type: "run.closed",
    usage,
    callsTotal: 1,
    toolCallsTotal: 1,
    refusedTotal: 0,
    packagesTotal: undefined,
    failure: undefined
  }
]

const audit = () => {
  let head = AuditLog.genesis(runId)
  let text = ""
  for (const draft of drafts) {
    const next = AuditLog.append(head, at, draft)
    head = next.head
    text += next.line
  }
  return text
}

const auditsOf = (text: string) => RunAudits.layerMemory(new Map([[runId, new TextEncoder().encode(text)]]))

const world = Effect.fnUntraced(function* (options: Parameters<typeof serve>[0]) {
  const served = yield* serve({ program: answering("Lima"), ...options })
  const caller = yield* served.caller()
  yield* caller.chat({ ...question, runId })
  return { ...served, caller, get: (part: string) => caller.get(`/api/v1/runs/${runId}${part}`) }
})

describe("the audit of a run", () => {
  it.effect("is verified, and lists entries as cut text, without bodies", () =>
    Effect.gen(function* () {
      const { get } = yield* world({ audits: auditsOf(audit()) })
      const verdict = yield* get("/audit")
      assert.containSubset(verdict.body, {
        runId,
        ok: true,
        closed: true,
        headKnown: false,
        head: { entries: 4 }
      })
      const first = yield* get("/audit/entries?limit=2")
      assert.deepStrictEqual(
        first.body.entries.map(({ entry, number, sound }: any) => [number, sound, entry.type]),
        [
          [1, true, "run.opened"],
          [2, true, "call.started"]
        ]
      )
      const { entry } = first.body.entries[1]
      assert.isUndefined(entry.body)
      // Callers learn nothing about the network of the host.
      assert.isUndefined(first.body.entries[0].entry.upstream)
      assert.strictEqual(entry.bodyChars, hostile.length)
      assert.isAtMost(entry.path.length, 4000)
      assert.strictEqual(first.headers.get("content-type"), "application/json")
      const second = yield* get(`/audit/entries?limit=2&after=${first.body.next}`)
      assert.deepStrictEqual([second.body.entries.length, second.body.next], [2, undefined])
      const body = yield* get("/calls/call-1/request")
      assert.strictEqual(body.body, hostile)
      assert.strictEqual(body.headers.get("content-type"), "text/plain; charset=utf-8")
      assert.strictEqual(body.headers.get("x-content-type-options"), "nosniff")
      assert.strictEqual((yield* get("/calls/call-1/answer")).body.error.reason, "BodyNotKept")
      const tools = yield* get("/tools")
      assert.containSubset(tools.body.tools, [{ source: "host", via: "mcp", outcome: "ok", durationMs: 4 }])
      assert.strictEqual(tools.body.tools[0].tool.length, 1000)
    })
  )

  it.effect("has a verdict that names the first change, and marks all entries from there", () =>
    Effect.gen(function* () {
      const { get } = yield* world({ audits: auditsOf(audit().replace('"outcome":"ok"', '"outcome":"no"')) })
      const verdict = yield* get("/audit")
      assert.containSubset(verdict.body, {
        ok: false,
        problem: { kind: "changed", line: 3 },
        head: { entries: 2 }
      })
      const { body } = yield* get("/audit/entries")
      assert.deepStrictEqual(
        body.entries.map(({ sound }: any) => sound),
        [true, true, false, false]
      )
      for (const after of ["-1", "x", "1e3"])
        assert.strictEqual((yield* get(`/audit/entries?after=${after}`)).body.error.reason, "CursorInvalid")
    })
  )
})

describe("readings of audits", () => {
  it.effect("are limited for each account, so that one does not keep all others waiting", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      let asked = 0
      const audits = Layer.succeed(RunAudits.RunAudits, {
        read: () =>
          Effect.suspend(() => {
            asked += 1
            return Effect.as(Deferred.await(gate), "absent" as const)
          }),
        readOn: () => Effect.succeed("absent" as const)
      })
      const server = yield* serve({ program: answering("Lima"), audits })
      const caller = yield* server.caller()
      yield* caller.chat({ ...question, runId })
      const get = (part: string) => caller.get(`/api/v1/runs/${runId}${part}`)
      const pending = yield* Effect.forkChild(
        Effect.forEach(Array.from({ length: 30 }), () => get("/audit"), { concurrency: "unbounded" })
      )
      yield* Await.until(
        "two audits are read",
        Effect.sync(() => asked === 2)
      )
      yield* Await.until(
        "one more is refused",
        Effect.map(get("/audit"), ({ body, status }) => {
          return status === 503 && body.error.reason === "TooManyAudits"
        })
      )
      const other = yield* server.caller({ billingAccountId: "other" })
      const id = "run-00000000000b"
      yield* other.chat({ ...question, runId: id })
      const theirs = yield* Effect.forkChild(other.get(`/api/v1/runs/${id}/audit`))
      yield* Deferred.succeed(gate, undefined)
      assert.strictEqual((yield* Fiber.join(theirs)).body.error.reason, "AuditNotFound")
      const statuses = (yield* Fiber.join(pending)).map(({ status }) => status)
      assert.strictEqual(statuses.filter((status) => status === 404).length, 16)
      assert.strictEqual(statuses.filter((status) => status === 503).length, 14)
    })
  )
})

describe("the model calls of a run", () => {
  it.effect("have the state of their cost, and so has their run", () =>
    Effect.gen(function* () {
      const ledger = Ledger.layerMemory()
      const llm: MemoryProxyOptions = {
        calls: [
          { inputTokens: 7, outputTokens: 3 },
          { model: "other", seconds: 2 }
        ]
      }
      const context = yield* Layer.build(ledger)
      const shared = Layer.succeedContext(context)
      yield* Effect.gen(function* () {
        const made = yield* Ledger.Ledger
        const run = runOf(runId, { billingAccountId: "acct" })
        yield* made.open(run)
        yield* made.settle({
          run,
          closedAt: "2026-01-31T10:06:00.000Z",
          entries: [
            entryOf(runId, `${runId}-1`, { billingAccountId: "acct", state: "matched", costUsd: 0.5 })
          ]
        })
      }).pipe(Effect.provide(shared))
      const { caller, get } = yield* world({ llm, ledger: shared })
      const { body } = yield* get("/calls")
      assert.strictEqual(body.callsTotal, 2)
      assert.containSubset(body.calls, [
        { callId: `${runId}-1`, status: 200, cost: { costUsd: 0.5, state: "matched", currency: "USD" } },
        { callId: `${runId}-2`, model: "other", durationMs: 2000 }
      ])
      assert.isUndefined(body.calls[1].cost)
      const page = yield* get("/calls?limit=1")
      assert.deepStrictEqual([page.body.calls.length, page.body.next], [1, "1"])
      const cost = { costUsd: 0.5, calls: 1, isSettled: true, states: { matched: 1 } }
      assert.containSubset((yield* get("")).body.cost, cost)
      assert.containSubset((yield* caller.get("/api/v1/runs")).body.runs[0].cost, cost)
    })
  )
})

describe("a repeated delivery", () => {
  const kept = {
    status: "kept" as const,
    origin: "https://github.com/acme/tool",
    branch: BranchName.make(`sandbox/${runId}`),
    keptAt: "/srv/secret",
    message: "see /srv/secret"
  }

  const retried = Effect.fnUntraced(function* (
    retry: (record: RunRecord) => Effect.Effect<Deliveries.Redelivery, RepositoryUnavailable>,
    repositories: ReadonlyArray<string> = ["https://github.com/acme/*"]
  ) {
    const deliveries = Layer.succeed(Deliveries.Deliveries, { retry })
    const { grant, store, url } = yield* world({ deliveries })
    yield* store.annotate(runId, { relay: kept })
    const { token } = yield* grant({ permissions: { repositories: repositories as never } })
    const other = yield* grant({ billingAccountId: "other" })
    const post = (bearer: string) =>
      Effect.promise(async () => {
        const response = await fetch(`${url}/api/v1/runs/${runId}/relay/retry`, {
          method: "POST",
          headers: { authorization: `Bearer ${bearer}` }
        })
        return { status: response.status, body: (await response.json()) as any }
      })
    assert.strictEqual((yield* post(other.token)).status, 404)
    const answer = yield* post(token)
    return { ...answer, record: yield* store.describe(runId) }
  })

  it.effect("answers and stores the new state, without paths of the host", () =>
    Effect.gen(function* () {
      const { body, record, status } = yield* retried(() =>
        Effect.succeed({
          record: { ...kept, status: "pushed", pullRequestUrl: "https://github.com/acme/tool/pull/1" }
        })
      )
      assert.strictEqual(status, 200)
      assert.containSubset(body, { runId, relay: { status: "pushed", origin: kept.origin } })
      assert.notInclude(JSON.stringify(body), "/srv/secret")
      assert.containSubset(record?.annotations?.["relay"] as object, { status: "pushed" })
    })
  )

  it.effect("delivers on behalf of the account and the grant of the caller", () =>
    Effect.gen(function* () {
      let user: ConnectionUser | undefined
      yield* retried(() =>
        Effect.gen(function* () {
          user = yield* ConnectionUser
          return { record: { ...kept, status: "pushed" } }
        })
      )
      const { billingAccountId, grantId } = yield* Effect.orDie(user!.authority)
      assert.deepStrictEqual([user!.runId, user!.billingAccountId], [runId, billingAccountId])
      assert.match(grantId, /^grant-/u)
    })
  )

  it.effect("reports why it failed again", () =>
    Effect.gen(function* () {
      const problem = { reason: "PolicyRefused", message: "a file is not allowed", isRetryable: false }
      const { body } = yield* retried(() =>
        Effect.succeed({ record: { ...kept, status: "failed" }, problem })
      )
      assert.deepStrictEqual(body.problem, problem)
    })
  )

  it.effect("needs a grant that allows the repository, and commits that are kept", () =>
    Effect.gen(function* () {
      const denied = yield* retried(() => Effect.die("must not be asked"), ["https://github.com/other/*"])
      assert.deepStrictEqual([denied.status, denied.body.error.reason], [403, "RepositoryNotGranted"])
      const gone = yield* retried(() => new RepositoryUnavailable({ reason: "NotKept", detail: "none" }))
      assert.deepStrictEqual([gone.status, gone.body.error.reason], [404, "NotKept"])
      const busy = yield* retried(
        () => new RepositoryUnavailable({ reason: "RelayFailed", detail: "in use" })
      )
      assert.deepStrictEqual([busy.status, busy.body.error.reason], [409, "RelayFailed"])
    })
  )

  it.effect("waits for the end of its run", () =>
    Effect.gen(function* () {
      const deliveries = Layer.succeed(Deliveries.Deliveries, {
        retry: () => Effect.die("must not be asked")
      })
      const served = yield* serve({ program: lasting, deliveries })
      const caller = yield* served.caller()
      const open = yield* caller.open(question)
      const answer = yield* Effect.promise(() =>
        fetch(`${served.url}/api/v1/runs/${open.runId}/relay/retry`, {
          method: "POST",
          headers: caller.headers
        })
      )
      assert.strictEqual(answer.status, 409)
    })
  )
})
