/** Tests the API of runs over HTTP: lists and their pages, parts of a run, and what an account may see. */
import * as Await from "../../../test/harness/Await.ts"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { createParser, type EventSourceMessage } from "eventsource-parser"
import { answering, envelope, lasting, question, serve } from "./ServerWorld.ts"

type World = Effect.Success<ReturnType<typeof serve>>
type Caller = Effect.Success<ReturnType<World["caller"]>>

const idsOf = ({ body }: { readonly body: any }): ReadonlyArray<string> =>
  body.runs.map(({ runId }: { readonly runId: string }) => runId)

/** Lists all pages of a query. */
const pages = Effect.fnUntraced(function* (caller: Caller, query: string) {
  const found: Array<ReadonlyArray<string>> = []
  let next = ""
  do {
    const page = yield* caller.get(`/api/v1/runs?${query}${next === "" ? "" : `&after=${next}`}`)
    assert.strictEqual(page.status, 200, JSON.stringify(page.body))
    found.push(idsOf(page))
    next = page.body.next ?? ""
  } while (next !== "")
  return found
})

/** Writes output, and waits for a signal. */
const speaking =
  (...texts: ReadonlyArray<string>): Program =>
  ({ stderr, stdout, terminated }) =>
    Effect.gen(function* () {
      for (const text of texts) yield* stdout(text)
      yield* stderr("<script>alert(1)</script>")
      yield* terminated
      return 143
    })

/** Reads the events of a run until the stream ends. */
const followed = (world: World, caller: Caller, runId: string, headers: Record<string, string> = {}) =>
  Effect.promise(async (signal) => {
    const response = await fetch(`${world.url}/api/v1/runs/${runId}/events`, {
      headers: { ...caller.headers, ...headers },
      signal
    })
    const messages: Array<EventSourceMessage> = []
    createParser({ onEvent: (message) => messages.push(message) }).feed(await response.text())
    return { status: response.status, messages, headers: response.headers }
  })

describe("a list of runs", () => {
  it.effect("selects by status, agent, model, grant and time, and continues page by page", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      const colleague = yield* world.caller()
      const runs: Array<string> = []
      for (const one of [caller, caller, colleague, caller]) {
        const { runId } = yield* one.chat()
        runs.unshift(runId)
        yield* TestClock.adjust("1 second")
      }
      assert.deepStrictEqual(yield* pages(caller, "limit=3"), [runs.slice(0, 3), runs.slice(3)])
      assert.deepStrictEqual(yield* pages(caller, "limit=2"), [runs.slice(0, 2), runs.slice(2)])
      assert.deepStrictEqual(yield* pages(caller, `grant=${colleague.grantId}`), [[runs[1]!]])
      assert.deepStrictEqual(yield* pages(caller, "status=succeeded,failed&agent=agent&model=gpt"), [runs])
      assert.deepStrictEqual(yield* pages(caller, "status=running"), [[]])
      assert.deepStrictEqual(yield* pages(caller, "from=1970-01-01T00:00:02.000Z"), [runs.slice(0, 2)])
      assert.deepStrictEqual(yield* pages(caller, "to=1970-01-01T00:00:02.000Z&limit=1"), [
        [runs[2]!],
        [runs[3]!]
      ])
      for (const query of [
        "agent=other",
        "model=o1",
        "repository=https://x/y",
        "minCostUsd=1",
        "account=other"
      ])
        assert.deepStrictEqual(yield* pages(caller, query), [[]], query)
    })
  )

  it.effect("refuses an unknown status, an invalid time, and a cursor that it did not write", () =>
    Effect.gen(function* () {
      const world = yield* serve()
      const caller = yield* world.caller()
      for (const [query, reason] of [
        ["status=asleep", "RequestInvalid"],
        ["stauts=failed", "RequestInvalid"],
        ["toString=1", "RequestInvalid"],
        ["from=yesterday", "RequestInvalid"],
        ["limit=101", "RequestInvalid"],
        ["after=e30", "CursorInvalid"]
      ]) {
        const { body, status } = yield* caller.get(`/api/v1/runs?${query}`)
        assert.deepStrictEqual([query, status, body.error.reason], [query, 400, reason])
      }
    })
  )

  it.effect("contains runs that are starting, on the first page", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: lasting })
      const caller = yield* world.caller()
      const { runId } = yield* caller.open(question)
      const listed = yield* caller.get("/api/v1/runs?status=starting,running&limit=1")
      assert.deepStrictEqual(idsOf(listed), [runId])
    })
  )
})

describe("the parts of a run", () => {
  it.effect("say that the server works on it until nothing of it is left", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: lasting })
      const caller = yield* world.caller()
      const { controller, runId } = yield* caller.open(question)
      assert.isTrue((yield* caller.get(`/api/v1/runs/${runId}`)).body.isUnderWay)
      controller.abort()
      yield* world.left(runId)
      assert.notProperty((yield* caller.get(`/api/v1/runs/${runId}`)).body, "isUnderWay")
    })
  )

  it.effect("show limits beside peaks, and who ran it", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat({ ...question, threadId: "thread-1" })
      const { body, headers } = yield* caller.get(`/api/v1/runs/${runId}`)
      assert.strictEqual(headers.get("cache-control"), "private, no-store")
      assert.containSubset(body, {
        runId,
        status: "succeeded",
        agentId: "agent",
        sessionId: "thread-1",
        grantId: caller.grantId,
        userId: "user",
        limits: { runtimeSecondsMax: 120 },
        suspicions: []
      })
      assert.match(body.traceId, /^[0-9a-f]{32}$/u)
      assert.notProperty(body, "traceUrl")
      assert.isDefined(body.peak)
    })
  )

  it.effect("lead to the viewer of traces that the operator uses, alone and in the list", () =>
    Effect.gen(function* () {
      const world = yield* serve({
        program: answering("Lima"),
        traceUrl: "https://traces.example/t/{traceId}?tz={traceId}"
      })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat()
      const { body } = yield* caller.get(`/api/v1/runs/${runId}`)
      assert.strictEqual(body.traceUrl, `https://traces.example/t/${body.traceId}?tz=${body.traceId}`)
      const listed = yield* caller.get("/api/v1/runs")
      assert.strictEqual(listed.body.runs[0].traceUrl, body.traceUrl)
    })
  )

  it.effect("answer output as plain text, whole and in ranges of bytes", () =>
    Effect.gen(function* () {
      const text = envelope("Limå")
      const world = yield* serve({ program: answering("Limå") })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat()
      const read = (range?: string) =>
        caller.get(`/api/v1/runs/${runId}/stdout`, range === undefined ? {} : { range })
      const whole = yield* read()
      assert.deepStrictEqual([whole.status, whole.body], [200, text])
      assert.strictEqual(whole.headers.get("content-type"), "text/plain; charset=utf-8")
      assert.strictEqual(whole.headers.get("x-content-type-options"), "nosniff")
      const bytes = new TextEncoder().encode(text).byteLength
      const part = yield* read("bytes=0-10")
      assert.deepStrictEqual([part.status, part.body], [206, text.slice(0, 11)])
      assert.strictEqual(part.headers.get("content-range"), `bytes 0-10/${bytes}`)
      assert.strictEqual((yield* read("bytes=-2")).body, text.slice(-2))
      const beyond = yield* read(`bytes=${bytes}-`)
      assert.deepStrictEqual([beyond.status, beyond.body.error.reason], [416, "RangeBeyondEnd"])
      assert.strictEqual(beyond.headers.get("content-range"), `bytes */${bytes}`)
      assert.strictEqual((yield* read("lines=1-2")).status, 200)
      assert.strictEqual((yield* caller.get(`/api/v1/runs/${runId}/stderr`)).body, "")
    })
  )

  it.effect("answer the output so far of a run under way", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: speaking("one ", "two") })
      const caller = yield* world.caller()
      const { runId } = yield* caller.open(question)
      const read = (channel: string) =>
        Effect.map(caller.get(`/api/v1/runs/${runId}/${channel}`), ({ body }) => body)
      yield* Await.until(
        "the output is there",
        Effect.map(read("stderr"), (body) => body !== "")
      )
      assert.strictEqual(yield* read("stdout"), "one two")
      assert.strictEqual(yield* read("stderr"), "<script>alert(1)</script>")
    })
  )

  it.effect("list the tools that an agent reported, as text", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat()
      const { body } = yield* caller.get(`/api/v1/runs/${runId}/tools`)
      assert.deepStrictEqual(body, { tools: [], truncated: false })
      const calls = yield* caller.get(`/api/v1/runs/${runId}/calls`)
      assert.deepStrictEqual(calls.body, { calls: [], callsTotal: 0 })
      const audit = yield* caller.get(`/api/v1/runs/${runId}/audit`)
      assert.deepStrictEqual([audit.status, audit.body.error.reason], [404, "AuditNotFound"])
    })
  )

  it.effect("do not exist for another account", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      const other = yield* world.caller({ billingAccountId: "other" })
      const { runId } = yield* caller.chat()
      const missing = yield* other.get("/api/v1/runs/run-000000000001")
      // A request for a run with the same ID, until it is refused.
      const same = { runId: RunId.make(runId), grantId: other.grantId, billingAccountId: "other" }
      yield* world.roster.claim({ ...same, graphId: "sandbox:agent", model: "gpt" })
      for (const part of [
        "",
        "/events",
        "/stdout",
        "/stderr",
        "/recording",
        "/calls",
        "/calls/c/request",
        "/calls/c/answer",
        "/tools",
        "/audit",
        "/audit/entries",
        "/patch"
      ]) {
        const { body, status } = yield* other.get(`/api/v1/runs/${runId}${part}`)
        assert.deepStrictEqual([part, status, body], [part, 404, missing.body])
      }
      assert.deepStrictEqual(yield* pages(other, ""), [[]])
      assert.deepStrictEqual(yield* pages(other, "account=acct"), [[]])
    })
  )
})

/** Starts a run, and waits for its output. */
const spoken = Effect.fnUntraced(function* (caller: Caller) {
  const { runId } = yield* caller.open(question)
  yield* Await.until(
    "the output is there",
    Effect.map(caller.get(`/api/v1/runs/${runId}/stderr`), ({ body }) => body !== "")
  )
  return runId
})

describe("the events of a run", () => {
  it.effect("are followed while it runs, by any number of readers, and resumed after an ID", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: speaking("one ", "two") })
      const caller = yield* world.caller()
      const runId = yield* spoken(caller)
      const readers = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(followed(world, caller, runId)))
      yield* Effect.promise(() => fetch(`${world.url}/health`))
      yield* caller.delete(`/api/v1/runs/${runId}`)
      const heard = yield* Effect.forEach(readers, (reader) => Effect.flatten(Await.ended(reader)))
      const [first] = heard
      assert.strictEqual(first?.headers.get("content-type"), "text/event-stream; charset=utf-8")
      const messages = first?.messages ?? []
      assert.deepStrictEqual(
        messages.map(({ id }) => id),
        messages.map((_, at) => String(at + 1))
      )
      const entries = messages.map(({ data }) => JSON.parse(data))
      assert.strictEqual(entries[0].type, "run.started")
      assert.containSubset(entries.at(-1), { type: "run.ended", status: "interrupted" })
      assert.deepStrictEqual(
        entries.flatMap((entry) => (entry.type === "output.written" ? [entry.text] : [])),
        ["one ", "two", "<script>alert(1)</script>"]
      )
      for (const one of heard) assert.deepStrictEqual(one.messages, messages)
      const resumed = yield* followed(world, caller, runId, { "last-event-id": "3" })
      assert.deepStrictEqual(resumed.messages, messages.slice(3))
      // An event source does not connect again after this answer.
      const last = String(messages.length)
      assert.strictEqual((yield* followed(world, caller, runId, { "last-event-id": last })).status, 204)
    })
  )

  it.effect("contain what the agent says, and not only its output", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: ({ stdout }) => Effect.as(stdout("one\ntwo\n"), 0) })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat({ ...question, graphId: "sandbox:talker" })
      const { messages } = yield* followed(world, caller, runId)
      assert.deepStrictEqual(
        messages
          .map(({ data }) => JSON.parse(data))
          .flatMap(({ text, type }) => (type === "message.written" ? [text] : [])),
        ["one", "two"]
      )
    })
  )

  it.effect("end with the recorded outcome for a run whose journal is gone", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima"), journals: false })
      const caller = yield* world.caller()
      const { runId } = yield* caller.chat()
      const { messages } = yield* Await.play(followed(world, caller, runId))
      assert.deepStrictEqual(
        messages.map(({ event, id }) => [id, event]),
        [["1", "run.ended"]]
      )
      assert.strictEqual((yield* followed(world, caller, runId, { "last-event-id": "1" })).status, 204)
    })
  )

  it.effect("have a limited number of readers, who must reconnect after a while", () =>
    Effect.gen(function* () {
      const world = yield* serve({
        program: speaking("one"),
        limits: { readersPerGrantMax: 1, followSecondsMax: 5 }
      })
      const caller = yield* world.caller()
      const colleague = yield* world.caller()
      const runId = yield* spoken(caller)
      const reader = yield* Effect.forkChild(followed(world, caller, runId))
      const path = `/api/v1/runs/${runId}/events`
      yield* Await.until(
        "the reader has a place",
        Effect.promise(async () => {
          const controller = new AbortController()
          const response = await fetch(`${world.url}${path}`, {
            headers: caller.headers,
            signal: controller.signal
          })
          controller.abort()
          return response.status === 503 && response.headers.get("retry-after") === "5"
        })
      )
      const other = yield* Effect.forkChild(followed(world, colleague, runId))
      const { messages } = yield* Effect.flatten(Await.ended(reader, 30))
      assert.strictEqual(messages[0]?.event, "run.started")
      assert.notStrictEqual(messages.at(-1)?.event, "run.ended")
      yield* Await.ended(other, 30)
    })
  )
})
