/** Tests event streams with readers that are slow, stalled or disconnect, and a server that stops meanwhile. */
import * as Await from "../../../test/harness/Await.ts"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import { connect } from "node:net"
import { answering, caller as callerOf, lasting, question, serve } from "./ServerWorld.ts"

const talk = { ...question, graphId: "sandbox:talker" }

/** An agent that writes a line again and again until it is terminated, and counts the lines. */
const chatterbox =
  (line: string, seen: { lines: number }): Program =>
  ({ stdout, terminated }) =>
    Effect.raceFirst(
      Effect.as(terminated, 143),
      Effect.forever(
        Effect.andThen(
          stdout(`${line}\n`),
          Effect.sync(() => (seen.lines += 1))
        )
      )
    )

/** Sends a request and never reads the response. */
const mute = (url: string, token: string, body: object) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const { hostname, port } = new URL(url)
      const text = JSON.stringify(body)
      const socket = connect({ host: hostname, port: Number(port) })
      socket.on("error", () => undefined)
      socket.pause()
      socket.write(
        `POST /api/v1/ai/chat HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${token}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`
      )
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

describe("a reader", () => {
  it.effect("that disconnects ends the run, which is recorded and leaves nothing behind", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting })
      const caller = yield* server.caller()
      const { controller, runId } = yield* caller.open(question)
      assert.strictEqual((yield* caller.get(`/api/v1/runs/${runId}`)).body.status, "running")
      controller.abort()
      yield* server.left(runId)
      const { body } = yield* caller.get(`/api/v1/runs/${runId}`)
      assert.containSubset(body, { status: "interrupted", error: { code: "aborted" } })
      assert.deepStrictEqual(yield* server.runtime.leftovers(RunId.make(runId)), [])
    })
  )

  it.effect("that does not read is disconnected after a timeout, with bounded memory until then", () =>
    Effect.gen(function* () {
      const seen = { lines: 0 }
      const server = yield* serve({
        program: chatterbox("x".repeat(4096), seen),
        limits: { streamIdleSecondsMax: 60 }
      })
      const { token } = yield* server.caller()
      const socket = yield* mute(server.url, token, { ...talk, runId: "run-000000000001" })
      const isStill = Effect.gen(function* () {
        const before = seen.lines
        yield* Effect.repeat(
          Effect.promise(() => new Promise((resolve) => setImmediate(resolve))),
          { times: 50 }
        )
        return before > 1000 && before === seen.lines
      })
      yield* Await.until("nothing more is written", isStill)
      assert.strictEqual((yield* server.roster.list).length, 1)
      // The queue of the run, the kernel's socket buffers, and not much more.
      assert.isBelow(seen.lines, 8000)
      const closed = Effect.promise(() => new Promise((resolve) => socket.once("close", resolve)))
      const fiber = yield* Effect.forkChild(closed, { startImmediately: true })
      yield* TestClock.adjust("121 seconds")
      yield* server.left("run-000000000001")
      socket.resume()
      yield* Fiber.join(fiber)
      const record = yield* server.store.get(RunId.make("run-000000000001"))
      assert.containSubset(record?.annotations?.["graph"], { ok: false, error: "aborted" })
    })
  )

  it.effect("a reader of a quiet run gets a heartbeat every 15 seconds", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting })
      const caller = yield* server.caller()
      const { response } = yield* caller.open(question)
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
      let text = ""
      const heard = (what: string): Effect.Effect<void> =>
        Effect.gen(function* () {
          while (!text.includes(what)) text += (yield* Effect.promise(() => reader.read())).value
        })
      yield* heard('"phase":"entrypoint"')
      assert.notInclude(text, ": heartbeat")
      yield* TestClock.adjust("15 seconds")
      yield* heard(": heartbeat\n\n")
    })
  )
})

describe("DELETE of a run", () => {
  it.effect("cancels a run under way, which still streams its end and is recorded", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting })
      const caller = yield* server.caller()
      const { response, runId } = yield* caller.open(question)
      const answer = yield* caller.delete(`/api/v1/runs/${runId}`)
      assert.deepStrictEqual([answer.status, answer.body], [202, { runId, status: "cancelling" }])
      const text = yield* Effect.promise(() => response.text())
      assert.include(text, '"error":"aborted"')
      assert.include(text, "event: done")
      yield* server.left(runId)
      const again = yield* caller.delete(`/api/v1/runs/${runId}`)
      assert.deepStrictEqual([again.status, again.body.error.reason], [409, "RunOver"])
    })
  )

  it.effect("answers 404 for an unknown run, a run of another account, and an invalid ID", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting })
      const caller = yield* server.caller()
      const other = yield* server.caller({ billingAccountId: "other" })
      const { runId } = yield* caller.open(question)
      for (const id of [runId, "run-000000000001", "..%2f..%2fetc"]) {
        const { body, status } = yield* other.delete(`/api/v1/runs/${id}`)
        assert.deepStrictEqual([id, status, body.error.code], [id, 404, "not_found"])
      }
      assert.strictEqual((yield* server.roster.list).length, 1)
    })
  )
})

describe("accounts", () => {
  it.effect("see only their own runs, under way or ended", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: answering("Lima") })
      const caller = yield* server.caller()
      const colleague = yield* server.caller()
      const other = yield* server.caller({ billingAccountId: "other" })
      const ours = yield* caller.chat()
      const theirs = yield* other.chat()
      const ids = (one: typeof caller) =>
        Effect.map(one.get("/api/v1/runs"), ({ body }) => body.runs.map(({ runId }: any) => runId))
      assert.deepStrictEqual(yield* ids(caller), [ours.runId])
      assert.deepStrictEqual(yield* ids(colleague), [ours.runId])
      assert.deepStrictEqual(yield* ids(other), [theirs.runId])
      assert.strictEqual((yield* other.get(`/api/v1/runs/${ours.runId}`)).status, 404)
    })
  )

  it.effect("get a list of runs sorted by newest first, up to the limit", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: answering("Lima") })
      const caller = yield* server.caller()
      const runs = yield* Effect.forEach([1, 2, 3], () =>
        Effect.tap(caller.chat(), () => TestClock.adjust("1 second"))
      )
      const { body } = yield* caller.get("/api/v1/runs?limit=2")
      assert.deepStrictEqual(
        body.runs.map(({ runId }: any) => runId),
        runs
          .map(({ runId }) => runId)
          .toReversed()
          .slice(0, 2)
      )
    })
  )
})

describe("a server that stops", () => {
  /** Starts a server with runs under way. `stop` closes it. */
  const busy = (runs: number, program: Program, drainSecondsMax = 30) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const server = yield* serve({
        program,
        patient: true,
        limits: { drainSecondsMax, runsPerGrantMax: 100, runsMax: 100 }
      }).pipe(Scope.provide(scope))
      const { id, token } = yield* server.grant()
      const caller = callerOf(server.url, token, id)
      const open = yield* Effect.forEach(
        Array.from({ length: runs }),
        () => Effect.tap(caller.open(question), ({ response }) => Effect.sync(() => void response)),
        { concurrency: "unbounded" }
      )
      const texts = Effect.forEach(open, ({ response }) => Effect.promise(() => response.text()), {
        concurrency: "unbounded"
      })
      return {
        caller,
        server,
        runIds: open.map(({ runId }) => RunId.make(runId)),
        texts,
        stop: Scope.close(scope, Exit.void)
      }
    })

  it.effect("waits for 20 runs to end, and refuses new ones meanwhile", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const { caller, runIds, server, stop, texts } = yield* busy(20, ({ stdout }) =>
        Effect.andThen(Deferred.await(gate), answering("Lima")({ stdout } as never))
      )
      const heard = yield* Effect.forkChild(texts, { startImmediately: true })
      const stopping = yield* Effect.forkChild(stop, { startImmediately: true })
      yield* Await.until("the server is stopping", server.roster.isStopping)
      const refused = yield* caller.post(question)
      assert.deepStrictEqual([refused.status, refused.body.error.reason], [503, "ServerStopping"])
      yield* Deferred.succeed(gate, undefined)
      const all = yield* Fiber.join(heard)
      assert.strictEqual(all.filter((text) => text.includes("assistant_final")).length, 20)
      yield* Fiber.join(stopping)
      for (const runId of runIds) {
        assert.strictEqual((yield* server.store.get(runId))?.outcome.status, "exited")
      }
    })
  )

  it.effect("cancels 20 remaining runs after the drain time, and each reports this and is recorded", () =>
    Effect.gen(function* () {
      const { runIds, server, stop, texts } = yield* busy(20, lasting, 30)
      const heard = yield* Effect.forkChild(texts, { startImmediately: true })
      const stopping = yield* Effect.forkChild(stop, { startImmediately: true })
      yield* Await.until("the server is stopping", server.roster.isStopping)
      yield* TestClock.adjust("29 seconds")
      assert.strictEqual((yield* server.roster.list).length, 20)
      yield* TestClock.adjust("1 second")
      const all = yield* Fiber.join(heard)
      assert.strictEqual(all.filter((text) => text.includes("the run was cancelled")).length, 20)
      yield* Fiber.join(stopping)
      for (const runId of runIds) {
        assert.strictEqual((yield* server.store.get(runId))?.outcome.status, "interrupted")
        assert.deepStrictEqual(yield* server.runtime.leftovers(RunId.make(runId)), [])
      }
    })
  )
})
