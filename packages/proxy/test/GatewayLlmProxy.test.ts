import { assert, describe, it } from "@effect/vitest"
import type * as Approval from "@cogni/sandbox-core/Approval"
import * as Approvals from "@cogni/sandbox-core/Approvals"
import * as Canary from "@cogni/sandbox-core/Canary"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Deferred, Effect, Fiber, Layer, Logger, Record, Redacted } from "effect"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import * as net from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as AuditLog from "../src/AuditLog.ts"
import * as GatewayLlmProxy from "../src/GatewayLlmProxy.ts"
import * as GatewayLimits from "../src/internal/shards/GatewayLimits.ts"
import * as CurrentTime from "../src/tools/CurrentTime.ts"
import * as Await from "../../../test/harness/Await.ts"
import * as Gateway from "./GatewaySocket.ts"

const inMemory = Effect.provide(Effect.service(Approvals.Approvals), Approvals.layerMemory)

LlmProxyContract.suite(
  "gateway, in process",
  GatewayLlmProxy.layer({ url: "http://127.0.0.1:4000", key: Redacted.make(Gateway.key) }).pipe(
    Layer.provide(UsageObserver.layerNone),
    Layer.provide(MemoryContainerRuntime.layer())
  ),
  {
    socketMount: Effect.map(
      Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true }))
      ),
      (source) => ({ type: "directory" as const, source, target: "/llm-sock", readOnly: true })
    )
  }
)

const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 }
const answered = { _tag: "Answer", body: JSON.stringify({ ok: true, usage }) } as const

const stream = (...events: ReadonlyArray<string>) =>
  ({
    _tag: "Answer",
    headers: { "content-type": "text/event-stream", "x-litellm-model-api-base": "http://secret" },
    body: events.map((event) => `data: ${event}\n\n`).join("")
  }) as const

const errorOf = (answer: Gateway.Answer) => JSON.parse(answer.body).error

/** Asserts that the audit is whole and does not contain the key. */
const sound = Effect.fnUntraced(function* (gateway: Effect.Success<ReturnType<typeof Gateway.make>>) {
  const traffic = yield* gateway.endpoint.finish
  const log = yield* gateway.audit
  const verdict = AuditLog.verify(Buffer.from(log), {
    runId: gateway.runId,
    head: traffic.auditHead,
    ended: true
  })
  assert.strictEqual(verdict._tag, "Whole", JSON.stringify(verdict))
  assert.notInclude(log, Gateway.key.slice(-8))
  const entries = log
    .trimEnd()
    .split("\n")
    .map((line): Record<string, unknown> => JSON.parse(line))
  return { traffic, entries }
})

describe("GatewayLlmProxy", () => {
  it.effect.each([
    [
      "http://127.0.0.1:4000/v1?api-version=1",
      "GatewayLlmProxy.url has a query or a fragment. Remove everything"
    ],
    ["127.0.0.1:4000", "GatewayLlmProxy.url is"]
  ] as const)("refuses the URL %s once, when the layer is built", ([url, says]) =>
    Effect.gen(function* () {
      const layer = GatewayLlmProxy.layer({ url, key: Redacted.make(Gateway.key) }).pipe(
        Layer.provide(UsageObserver.layerNone)
      )
      const error = yield* Effect.flip(
        Effect.scoped(Layer.build(Layer.provide(layer, MemoryContainerRuntime.layer())))
      )
      assert.deepInclude(error, { _tag: "Misconfigured", isRetryable: false })
      assert.include(error.message, says)
      assert.lengthOf(error.message.split(error.remedy), 2, "the remedy is in the message once")
    })
  )

  it.live("reports the header that carries the key", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ keyHeader: "x-api-key" })
      const { injectedHeaders } = yield* gateway.endpoint.finish
      assert.strictEqual(injectedHeaders[0], "x-api-key")
    })
  )

  it.live("sends the host's traceparent upstream, and never the agent's", () =>
    Effect.gen(function* () {
      const ours = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
      const theirs = `00-${"e".repeat(32)}-${"e".repeat(16)}-01`
      const headers = [`traceparent: ${theirs}`, "tracestate: evil=1", "baggage: evil=1"]
      for (const traceparent of [ours, undefined]) {
        const gateway = yield* Gateway.make({ script: [answered], request: { traceparent } })
        yield* gateway.send(Gateway.http(Gateway.chat({}), { headers }))
        const [received] = yield* gateway.upstream.received
        const traced = received!.headers.filter(([name]) => /^(?:trace|baggage)/iu.test(name))
        assert.deepStrictEqual(traced, traceparent === undefined ? [] : [["traceparent", ours]])
        const { injectedHeaders } = yield* gateway.endpoint.finish
        assert.strictEqual(injectedHeaders.includes("traceparent"), traceparent !== undefined)
      }
    })
  )

  it.live("forwards a rebuilt call with the run's identity and one credential", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [answered] })
      const answer = yield* gateway.send(
        Gateway.http(Gateway.chat({ user: "evil", api_base: "http://evil", metadata: { a: 1 } }), {
          headers: [
            "x-litellm-customer-id: evil",
            "Authorization: Bearer evil",
            "x-litellm-call-id: evil",
            "x-api-key: evil",
            "anthropic-beta: files-api-2025-04-14,interleaved-thinking-2025-05-14"
          ]
        })
      )
      assert.strictEqual(answer.status, 200, answer.text)
      const [received] = yield* gateway.upstream.received
      const headers = received!.headers.map(([name, value]) => [name.toLowerCase(), value] as const)
      assert.deepStrictEqual(headers.map(([name]) => name).toSorted(), [
        "accept",
        "accept-encoding",
        "anthropic-beta",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "x-litellm-call-id",
        "x-litellm-customer-id",
        "x-litellm-end-user-id",
        "x-litellm-spend-logs-metadata"
      ])
      const byName = new Map(headers)
      assert.strictEqual(byName.get("authorization"), `Bearer ${Gateway.key}`)
      assert.strictEqual(byName.get("x-litellm-customer-id"), "contract")
      assert.strictEqual(byName.get("anthropic-beta"), "interleaved-thinking-2025-05-14")
      const { entries, traffic } = yield* sound(gateway)
      assert.deepStrictEqual(traffic.usage, {
        calls: 1,
        inputTokens: 7,
        outputTokens: 3,
        cacheReadTokens: 0,
        cacheWriteTokens: 0,
        callsWithoutUsage: 0,
        callsWithoutCost: 1
      })
      assert.deepStrictEqual(
        entries.map(({ type }) => type),
        ["run.opened", "call.started", "call.ended", "run.closed"]
      )
      assert.sameMembers(entries[1]!["dropped"] as Array<string>, ["user", "api_base", "metadata"])
      assert.strictEqual(entries[1]!["callId"], byName.get("x-litellm-call-id"))
      assert.strictEqual(traffic.calls[0]!.callId, byName.get("x-litellm-call-id"))
      assert.strictEqual(traffic.calls[0]!.outcome, "completed")
    })
  )

  it.live("passes a stream unchanged, except for usage that the agent did not request", () =>
    Effect.gen(function* () {
      const word = '{"choices":[{"index":0,"delta":{"content":"hi"}}]}'
      const last = JSON.stringify({ choices: [], usage })
      const gateway = yield* Gateway.make({ script: [stream(word, last, "[DONE]")] })
      const quiet = yield* gateway.send(Gateway.http(Gateway.chat({ stream: true })))
      assert.include(quiet.text, `data: ${word}\n\ndata: [DONE]\n\n`)
      assert.isFalse([...quiet.headers.keys()].some((name) => name.startsWith("x-litellm")))
      const asked = yield* gateway.send(
        Gateway.http(Gateway.chat({ stream: true, stream_options: { include_usage: true } }))
      )
      assert.include(asked.text, `data: ${last}\n\ndata: [DONE]\n\n`)
      const { traffic } = yield* sound(gateway)
      assert.strictEqual(traffic.usage?.inputTokens, 14)
      assert.strictEqual(traffic.usage?.callsWithoutUsage, 0)
    })
  )

  it.live(
    "forwards events at once, and ends the upstream's request with its agent if it reads no further",
    () =>
      Effect.gen(function* () {
        const gateway = yield* Gateway.make({
          script: [{ _tag: "SlowStream", events: 1000, pauseMillis: 5 }],
          drainSecondsMax: 0
        })
        const seen = yield* Effect.callback<string>((resume) => {
          const socket = net.connect(gateway.socketPath)
          let text = ""
          socket.on("data", (data) => {
            text += data.toString("latin1")
            if (!text.includes('"content":"3 "')) return
            socket.destroy()
            resume(Effect.succeed(text))
          })
          socket.write(Gateway.http(Gateway.chat({ stream: true })))
        })
        assert.notInclude(seen, '"content":"30 "')
        yield* Effect.eventually(
          Effect.filterOrFail(gateway.upstream.received, ([received]) => received?.cut === true)
        ).pipe(Effect.timeout("5 minutes"))
        const { entries, traffic } = yield* sound(gateway)
        assert.strictEqual(traffic.calls[0]!.outcome, "client_aborted")
        assert.strictEqual(traffic.usage?.callsWithoutUsage, 1)
        assert.strictEqual(entries.find(({ type }) => type === "call.ended")!["outcome"], "client_aborted")
      })
  )

  it.live("records an upstream's failure as a typed outcome, and reports it in the format of the API", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [
          { _tag: "Refuse" },
          { _tag: "ResetMidStream", events: 3 },
          { _tag: "Html", status: 503 },
          { _tag: "Error", status: 500 },
          { _tag: "Error", status: 401 },
          answered
        ]
      })
      const ask = (path?: string) =>
        gateway.send(Gateway.http(Gateway.chat({ stream: true }), path === undefined ? {} : { path }))
      const refused = yield* ask()
      assert.strictEqual(refused.status, 502)
      assert.strictEqual(errorOf(refused).code, "upstream_unreachable")
      const cut = yield* ask()
      assert.strictEqual(cut.status, 200)
      assert.notInclude(cut.text, "\r\n0\r\n\r\n")
      assert.strictEqual((yield* ask()).status, 503)
      assert.strictEqual((yield* ask()).status, 500)
      const wrongKey = yield* ask()
      assert.strictEqual(wrongKey.status, 502)
      assert.strictEqual(errorOf(wrongKey).code, "upstream_refused")
      assert.strictEqual((yield* ask()).status, 200)
      const { traffic } = yield* sound(gateway)
      assert.deepStrictEqual(
        traffic.calls.map(({ outcome }) => outcome),
        ["upstream_cut", "upstream_cut", "completed", "completed", "completed", "completed"]
      )
    })
  )

  it.live("answers 502 if the upstream cannot be reached", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ url: "http://127.0.0.1:1" })
      const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(answer.status, 502)
      const { traffic } = yield* sound(gateway)
      assert.strictEqual(traffic.calls[0]!.outcome, "upstream_unreachable")
      assert.strictEqual(traffic.usage?.callsWithoutUsage, 0)
    })
  )

  it.live("lists the run's models and refuses all others", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [answered], llm: { models: { fast: "vendor/fast-1" } } })
      const list = yield* gateway.send(Gateway.http("", { method: "GET", path: "/v1/models" }))
      assert.deepStrictEqual(
        JSON.parse(list.body).data.map(({ id }: { readonly id: string }) => id),
        ["contract-model", "fast"]
      )
      const other = yield* gateway.send(Gateway.http(Gateway.chat({ model: "gpt-9" })))
      assert.strictEqual(other.status, 404)
      assert.strictEqual(errorOf(other).code, "model_not_found")
      yield* gateway.send(Gateway.http(Gateway.chat({ model: "fast" })))
      const { entries } = yield* sound(gateway)
      const started = entries.find(({ type }) => type === "call.started")!
      assert.strictEqual(started["model"], "vendor/fast-1")
      assert.strictEqual(started["modelRequested"], "fast")
    })
  )

  it.live("reports a spent budget once to the run, and to the agent in the format of its API", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [answered],
        llm: { budget: { callsMax: 2, onExhausted: "refuse" } }
      })
      for (let index = 0; index < 2; index++)
        assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      const openai = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(openai.status, 429)
      assert.strictEqual(openai.headers.get("x-should-retry"), "false")
      assert.strictEqual(errorOf(openai).type, "insufficient_quota")
      const anthropic = yield* gateway.send(
        Gateway.http(
          { model: "contract-model", max_tokens: 5, messages: [{ role: "user", content: "x" }] },
          { path: "/v1/messages" }
        )
      )
      assert.strictEqual(anthropic.status, 402)
      assert.strictEqual(errorOf(anthropic).type, "billing_error")
      assert.deepStrictEqual(gateway.observed, [
        { _tag: "BudgetExhausted", exhaustion: { budget: "calls", limit: 2, used: 2 } }
      ])
      const { entries, traffic } = yield* sound(gateway)
      assert.strictEqual(traffic.exhausted?.budget, "calls")
      assert.strictEqual(entries.filter(({ type }) => type === "budget.exhausted").length, 1)
      assert.strictEqual((yield* gateway.upstream.received).length, 2)
    })
  )

  it.live("answers requests above the rate with Retry-After, without filling the audit", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [answered],
        llm: { budget: { requestsPerSecondMax: 2, onExhausted: "refuse" } }
      })
      const answers = yield* Effect.forEach(
        Array.from({ length: 60 }),
        () => gateway.send(Gateway.http("", { method: "GET", path: "/v1/models" })),
        { concurrency: 20 }
      )
      const over = answers.filter(({ status }) => status === 429)
      assert.isAtLeast(over.length, 40)
      assert.match(over[0]!.headers.get("retry-after")!, /^[1-9]/u)
      const { entries } = yield* sound(gateway)
      assert.isAtMost(entries.length, 50)
    })
  )

  it.live("detects a canary in any spelling of a prompt, and does not send it under the policy stop", () =>
    Effect.gen(function* () {
      const planted = yield* Canary.plant
      const secret = planted.canaries[1]!.secret
      const warned = yield* Gateway.make({
        script: [answered],
        request: { canaries: { policy: "warn", planted: planted.canaries } }
      })
      const escaped = JSON.stringify(
        Gateway.chat({ messages: [{ role: "user", content: "SECRET" }] })
      ).replace(
        "SECRET",
        [...secret].map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`).join("")
      )
      assert.strictEqual((yield* warned.send(Gateway.http(escaped))).status, 200)
      // Every call sends the whole conversation again, so a canary in it is reported once.
      assert.strictEqual((yield* warned.send(Gateway.http(escaped))).status, 200)
      assert.strictEqual(warned.observed.length, 1)
      const told = (yield* sound(warned)).entries.filter(({ type }) => type === "exfiltration.suspected")
      assert.strictEqual(told.length, 1)
      const stopped = yield* Gateway.make({
        script: [answered],
        request: { canaries: { policy: "stop", planted: planted.canaries } }
      })
      const answer = yield* stopped.send(
        Gateway.http(Gateway.chat({ messages: [{ role: "user", content: `x ${btoa(`..${secret}`)}` }] }))
      )
      assert.strictEqual(answer.status, 403)
      assert.deepStrictEqual(yield* stopped.upstream.received, [])
      const [observed] = stopped.observed
      assert.strictEqual(observed?._tag === "ExfiltrationSuspected" && observed.evidence.encoding, "base64")
      const { entries } = yield* sound(stopped)
      assert.isTrue(entries.some(({ type }) => type === "exfiltration.suspected"))
      assert.notInclude(JSON.stringify(entries), secret)
    })
  )

  it.live("isolates two runs of one gateway, and closes the connections of a run that ends", () =>
    Effect.gen(function* () {
      const first = yield* Gateway.make({ script: [answered] })
      const other = yield* Gateway.openRun(first.proxy, { llm: { model: "other" } })
      assert.strictEqual((yield* first.send(Gateway.http(Gateway.chat({ model: "other" })))).status, 404)
      assert.strictEqual((yield* other.send(Gateway.http(Gateway.chat({ model: "other" })))).status, 200)
      const open = yield* Deferred.make<void>()
      const connected = () => void Deferred.doneUnsafe(open, Effect.void)
      const idle = yield* Effect.forkChild(
        Effect.callback<void>((resume) => {
          const socket = net.connect(other.socketPath)
          socket.once("close", () => resume(Effect.void))
          socket.once("connect", connected)
          socket.on("error", () => undefined)
        }),
        { startImmediately: true }
      )
      yield* Deferred.await(open)
      yield* other.endpoint.finish
      yield* Fiber.join(idle).pipe(Effect.timeout("5 minutes"))
      assert.strictEqual(
        (yield* other.send(Gateway.http(Gateway.chat({ model: "other" })))).status,
        undefined
      )
      assert.strictEqual((yield* first.send(Gateway.http(Gateway.chat()))).status, 200)
    })
  )

  it.live("serves only the tools that the run may call, over plain HTTP", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        tools: [CurrentTime.tool],
        request: { tools: ["core__get_current_time"] }
      })
      const call = (body: unknown) => gateway.send(Gateway.http(body, { path: "/tool/exec" }))
      const time = yield* call({ tool: "core__get_current_time", args: { timezone: "Europe/Berlin" } })
      assert.strictEqual(time.status, 200, time.text)
      assert.match(JSON.parse(time.body).result.iso, /^20\d\d-/u)
      const denied = yield* call({ tool: "core__metrics_query", args: {} })
      assert.strictEqual(denied.status, 403)
      assert.strictEqual(errorOf(denied).code, "policy_denied")
      const another = yield* call({ tool: "core__get_current_time", args: {}, runId: "run-000000000000" })
      assert.strictEqual(errorOf(another).code, "policy_denied")
      assert.strictEqual(
        errorOf(yield* call({ tool: "core__get_current_time", args: { x: 1 } })).code,
        "validation"
      )
      assert.strictEqual(errorOf(yield* call("{")).code, "invalid_json")
      const { entries, traffic } = yield* sound(gateway)
      assert.strictEqual(traffic.toolCallsTotal, 4)
      assert.deepStrictEqual(
        entries.filter(({ type }) => type === "tool.called").map(({ outcome }) => outcome),
        ["ok", "policy_denied", "policy_denied", "validation"]
      )
    })
  )

  it.live("accepts a call with the names of the source documents, of its own run only", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        tools: [CurrentTime.tool],
        request: { tools: ["core__get_current_time"] }
      })
      const call = (over: object) =>
        gateway.send(
          Gateway.http(
            { runId: gateway.runId, toolName: "core__get_current_time", toolCallId: "call-1", ...over },
            { path: "/tool/exec" }
          )
        )
      const time = yield* call({ args: { timezone: "Europe/Berlin" } })
      assert.strictEqual(time.status, 200, time.text)
      const { ok, value } = JSON.parse(time.body)
      assert.isTrue(ok)
      assert.match(value.iso, /^20\d\d-/u)
      for (const [over, status, errorCode] of [
        [{ toolName: "core__metrics_query" }, 403, "policy_denied"],
        [{ runId: "run-000000000000" }, 403, "policy_denied"],
        [{ args: { x: 1 } }, 400, "validation"]
      ] as const) {
        const refused = yield* call(over)
        const answer = JSON.parse(refused.body)
        assert.deepStrictEqual([refused.status, answer.ok, answer.errorCode], [status, false, errorCode])
        assert.isString(answer.safeMessage)
      }
    })
  )

  it.live("lets a call wait for an approval, and tells the run and the audit, without its arguments", () =>
    Effect.gen(function* () {
      const approvals = yield* inMemory
      const gateway = yield* Gateway.make({
        tools: [CurrentTime.tool],
        request: {
          tools: ["core__get_current_time"],
          toolRules: [
            { tool: "core__*", access: "open" },
            { tool: "core__*", effect: "read_only", access: "ask" }
          ]
        }
      }).pipe(Effect.provideService(Approvals.Approvals, approvals))
      const call = (timezone: string) =>
        gateway.send(
          Gateway.http({ tool: "core__get_current_time", args: { timezone } }, { path: "/tool/exec" })
        )
      const waiting = approvals.list({ status: "pending" })
      const pending = Await.until(
        "a call waits",
        Effect.map(waiting, (found) => found.length > 0)
      )
      const decided = Effect.fnUntraced(function* (timezone: string, decision: "approve" | "deny") {
        const fiber = yield* Effect.forkChild(call(timezone))
        yield* pending
        const [{ id } = { id: "" }] = yield* waiting
        yield* approvals.decide({ id, decision, by: { type: "operator", id: "ana" } })
        return yield* Fiber.join(fiber)
      })
      assert.strictEqual((yield* decided("Europe/Berlin", "approve")).status, 200)
      assert.strictEqual(errorOf(yield* decided("Europe/Paris", "deny")).code, "policy_denied")
      // The agent has only its socket, on which nothing decides.
      const [ended] = yield* approvals.list({})
      const forged = Gateway.http({ decision: "approve" }, { path: `/api/v1/approvals/${ended?.id}` })
      assert.strictEqual((yield* gateway.send(forged)).status, 403)
      const { entries } = yield* sound(gateway)
      assert.deepStrictEqual(
        entries.flatMap(({ decision, outcome, type }) =>
          String(type).startsWith("tool.") ? [[type, decision ?? outcome]] : []
        ),
        [
          ["tool.approval_requested", undefined],
          ["tool.approval_decided", "approved"],
          ["tool.called", "ok"],
          ["tool.approval_requested", undefined],
          ["tool.approval_decided", "denied"],
          ["tool.called", "policy_denied"]
        ]
      )
      assert.notInclude(JSON.stringify(entries), "Berlin")
      assert.deepStrictEqual(
        gateway.observed.map(({ _tag }) => _tag),
        ["ApprovalRequested", "ApprovalDecided", "ApprovalRequested", "ApprovalDecided"]
      )
    })
  )

  it.live("denies a call that waits for an approval when its client closes the connection", () =>
    Effect.gen(function* () {
      const approvals = yield* inMemory
      const warned: Array<string> = []
      const logger = Logger.make(({ message }) => void warned.push(String(message)))
      const gateway = yield* Gateway.make({
        tools: [CurrentTime.tool],
        request: {
          tools: ["core__get_current_time"],
          toolRules: [
            { tool: "core__*", access: "open" },
            { tool: "core__*", access: "ask" },
            { tool: "acme__*", access: "closed" }
          ]
        }
      }).pipe(Effect.provideService(Approvals.Approvals, approvals), Effect.provide(Logger.layer([logger])))
      assert.match(warned.join(), /the rule closed acme__\* covers no tool of this host/u)
      const has = (status: Approval.ApprovalStatus) =>
        Await.until(
          `a call is ${status}`,
          Effect.map(approvals.list({ status }), (found) => found.length === 1)
        )
      const http = Gateway.http({ tool: "core__get_current_time", args: {} }, { path: "/tool/exec" })
      const rpc = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "core__get_current_time" } }
      const accept = ["Accept: application/json, text/event-stream"]
      for (const bytes of [http, Gateway.http(rpc, { path: "/mcp", headers: accept })]) {
        const socket = net.connect({ path: gateway.socketPath })
        socket.on("error", () => undefined)
        socket.write(bytes)
        yield* has("pending")
        socket.destroy()
        yield* Await.until(
          "nothing waits",
          Effect.map(approvals.list({ status: "pending" }), (found) => found.length === 0)
        )
      }
      assert.deepStrictEqual(
        (yield* approvals.list({})).map(({ status }) => status),
        ["cancelled", "cancelled"]
      )
    })
  )

  it.live("blocks and reports a canary in the arguments of a tool", () =>
    Effect.gen(function* () {
      const planted = yield* Canary.plant
      const gateway = yield* Gateway.make({
        tools: [CurrentTime.tool],
        request: {
          tools: ["core__get_current_time"],
          canaries: { policy: "stop", planted: planted.canaries }
        }
      })
      const answer = yield* gateway.send(
        Gateway.http(
          { tool: "core__get_current_time", args: { timezone: planted.canaries[0]!.secret } },
          { path: "/tool/exec" }
        )
      )
      assert.strictEqual(errorOf(answer).code, "policy_denied")
      const [observed] = gateway.observed
      assert.strictEqual(observed?._tag === "ExfiltrationSuspected" && observed.evidence.channel, "tool_call")
      yield* sound(gateway)
    })
  )

  it.live("refuses a call that cannot be recorded, and fails the run", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [answered], auditBytesMax: 20_000 })
      let passed = 0
      let last: Gateway.Answer | undefined
      for (let index = 0; index < 40 && (last?.status ?? 200) === 200; index++) {
        last = yield* gateway.send(Gateway.http(Gateway.chat()), { idleMillis: 15 })
        if (last.status === 200) passed += 1
      }
      assert.isAbove(passed, 2)
      assert.strictEqual(last?.status, 503)
      assert.strictEqual((yield* gateway.upstream.received).length, passed)
      const error = yield* Effect.flip(gateway.endpoint.failure).pipe(Effect.timeout("5 minutes"))
      assert.strictEqual(error._tag, "ProxyFailed")
      assert.match(error.message, /audit/u)
      const { entries } = yield* sound(gateway)
      assert.strictEqual(entries.filter(({ type }) => type === "call.started").length, passed)
    })
  )

  it.live("inspects a large body on another thread, with the same result", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [answered] })
      const content = "x".repeat(3_000_000)
      const answer = yield* gateway.send(
        Gateway.http(Gateway.chat({ messages: [{ role: "user", content }], evil: true }))
      )
      assert.strictEqual(answer.status, 200, answer.text.slice(0, 500))
      const [received] = yield* gateway.upstream.received
      assert.isAbove(received!.bodyBytes, 3_000_000)
      const { entries } = yield* sound(gateway)
      assert.deepStrictEqual(entries[1]!["dropped"], ["evil"])
    })
  )
})

describe("the limits of a gateway", () => {
  it.effect("are refused if they have no meaning, each by its name", () =>
    Effect.gen(function* () {
      for (const name of Record.keys(GatewayLimits.options))
        for (const value of [Number.NaN, -1, Number.POSITIVE_INFINITY, "1" as never]) {
          const error = yield* Effect.flip(Effect.scoped(Gateway.make({ [name]: value })))
          assert.strictEqual(error._tag, "Misconfigured", name)
          assert.include(
            error.message,
            typeof value === "number" ? `${name} ${value}, which` : `${name}, a string, which`
          )
        }
      for (const [name, value] of [
        ["requestBytesMax", 0],
        ["concurrentCallsMax", 1.5],
        ["requestSecondsMax", 0],
        ["drainSecondsMax", 1e9],
        ["endDrainSecondsMax", 21],
        ["shardHeapBytesMax", 1024]
      ] as const) {
        const error = yield* Effect.flip(Effect.scoped(Gateway.make({ [name]: value })))
        assert.include(error.message, `${name} ${value}`)
      }
    })
  )

  it("have defaults that are accepted, and each option that is a number has a range", () => {
    for (const [name, value] of Record.toEntries(GatewayLimits.defaults))
      assert.isTrue(GatewayLimits.options[name].contains(value), name)
    const declared = readFileSync(new URL("../src/GatewayLlmProxy.ts", import.meta.url), "utf8").matchAll(
      /^  readonly (\w+)\?: number \| undefined$/gmu
    )
    assert.sameMembers(
      [...declared].map(([, name]) => name),
      Record.keys(GatewayLimits.options)
    )
  })
})
