/** Remembered threads over HTTP: a conversation, its history, its removal, by the account alone. */
import * as ThreadFiles from "@cogni/sandbox-graph-provider/threads/ThreadFiles"
import * as ThreadStore from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import { ThreadsUnavailable } from "@cogni/sandbox-graph-provider/threads/ThreadError"
import * as Threads from "@cogni/sandbox-graph-provider/threads/Threads"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Await from "../../../test/harness/Await.ts"
import { answering, lasting, question, serve } from "./ServerWorld.ts"

const threads = Threads.layer().pipe(
  Layer.provide(Layer.merge(ThreadStore.layerMemory, ThreadFiles.layerMemory))
)

const hostile = '<img src=x onerror="alert(1)">\u202e'

const turn = { ...question, threadId: hostile, remember: true }

describe("threads", () => {
  it.effect("are listed, shown, reset and removed by their account, and by no other", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima"), threads })
      const caller = yield* world.caller()
      const stranger = yield* world.caller({ billingAccountId: "other" })
      const { runId, status } = yield* caller.chat(turn)
      assert.strictEqual(status, 200)
      yield* world.left(runId)
      const listed = yield* caller.get("/api/v1/threads")
      const [{ key, ...shown }, ...others] = listed.body.threads
      assert.deepStrictEqual([listed.status, others], [200, []])
      assert.deepInclude(shown, { threadId: hostile, turns: 1, hasFiles: true, isBusy: false })
      assert.notProperty(shown, "billingAccountId")
      assert.notProperty(shown, "host")
      const path = `/api/v1/threads/${key}`
      const { turns } = (yield* caller.get(path)).body
      assert.containSubset(turns, [{ runId, agent: "agent", asked: "Where?", answered: "Lima" }])

      assert.deepStrictEqual((yield* stranger.get("/api/v1/threads")).body, { threads: [] })
      for (const answer of [yield* stranger.get(path), yield* stranger.delete(path)])
        assert.deepStrictEqual([answer.status, answer.body.error.reason], [404, "ThreadNotFound"])
      yield* stranger.chat(turn)
      assert.notStrictEqual((yield* stranger.get("/api/v1/threads")).body.threads[0].key, key)
      for (const wrong of ["..%2f..%2fetc", "x", key.toUpperCase().replace(/^./u, "Z")])
        assert.strictEqual((yield* caller.get(`/api/v1/threads/${wrong}`)).status, 400)

      const reset = yield* caller.delete(`${path}?history=keep`)
      assert.deepStrictEqual([reset.status, reset.body], [200, { key, status: "reset" }])
      assert.containSubset((yield* caller.get(path)).body, {
        thread: { hasFiles: false },
        turns: [{ runId }]
      })
      assert.deepStrictEqual((yield* caller.delete(path)).body, { key, status: "removed" })
      assert.strictEqual((yield* caller.get(path)).status, 404)
    })
  )

  it.effect("are read in parts, the newest first, a few readings at one time", () =>
    Effect.gen(function* () {
      let under = 0
      let most = 0
      const counted = Layer.effect(
        Threads.Threads,
        Effect.map(Threads.Threads, (all) => ({
          ...all,
          find: (...asked: Parameters<typeof all.find>) =>
            Effect.acquireUseRelease(
              Effect.sync(() => {
                most = Math.max(most, ++under)
              }),
              () => Effect.andThen(Effect.yieldNow, all.find(...asked)),
              () => Effect.sync(() => under--)
            )
        }))
      ).pipe(Layer.provide(threads))
      const world = yield* serve({ program: answering("x".repeat(200_000)), threads: counted })
      const caller = yield* world.caller()
      for (let number = 1; number <= 4; number++) {
        const { runId } = yield* caller.chat(turn)
        yield* world.left(runId)
      }
      const [{ key }] = (yield* caller.get("/api/v1/threads")).body.threads
      const path = `/api/v1/threads/${key}`
      const newest = (yield* caller.get(path)).body
      assert.deepStrictEqual([newest.turns.length, newest.before], [2, 3])
      const rest = (yield* caller.get(`${path}?before=3`)).body
      assert.deepStrictEqual([rest.turns.length, rest.before], [2, undefined])
      assert.strictEqual((yield* caller.get(`${path}?before=0`)).status, 400)
      yield* Effect.all(
        Array.from({ length: 8 }, () => caller.get(path)),
        { concurrency: "unbounded" }
      )
      assert.isAtMost(most, 2)
    })
  )

  it.effect("have one turn at a time: a second one, and a removal, are refused with a time to retry", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: lasting, threads })
      const caller = yield* world.caller()
      const { controller, runId } = yield* caller.open(turn)
      // The response begins before the run takes its thread.
      const isListed = Effect.map(caller.get("/api/v1/threads"), ({ body }) => body.threads.length === 1)
      yield* Await.until("the thread is listed", isListed)
      const [{ key }] = (yield* caller.get("/api/v1/threads")).body.threads
      for (const busy of [yield* caller.post(turn), yield* caller.delete(`/api/v1/threads/${key}`)]) {
        assert.deepStrictEqual([busy.status, busy.body.error.reason], [429, "ThreadBusy"])
        assert.match(busy.headers.get("retry-after") ?? "", /^[1-9]\d?$/u)
      }
      controller.abort()
      yield* world.left(runId)
      assert.strictEqual((yield* caller.delete(`/api/v1/threads/${key}`)).status, 200)
    })
  )

  it.effect("refuse what cannot be remembered before a run exists", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: answering("Lima"), threads })
      const forgetful = yield* serve({ program: answering("Lima") })
      const caller = yield* world.caller()
      for (const [who, body] of [
        [caller, { ...question, remember: true }],
        [caller, { ...turn, messages: [...question.messages, ...question.messages] }],
        [caller, { ...turn, threadId: "a\u0000b" }],
        [yield* forgetful.caller(), turn]
      ] as const) {
        const refused = yield* who.post(body)
        assert.deepStrictEqual([refused.status, refused.body.error.reason], [400, "ThreadUnsupported"])
      }
      assert.deepStrictEqual((yield* caller.get("/api/v1/threads")).body, { threads: [] })
      // Without `remember`, a thread is only a label.
      assert.strictEqual((yield* caller.chat({ ...question, threadId: "label" })).status, 200)
      assert.deepStrictEqual((yield* caller.get("/api/v1/threads")).body, { threads: [] })
    })
  )

  it.effect("report a store that cannot be reached with 503", () =>
    Effect.gen(function* () {
      const gone = Effect.fail(new ThreadsUnavailable({ detail: "is gone", remedy: "Wait" }))
      const broken = Layer.effect(
        Threads.Threads,
        Effect.map(Threads.Threads, (all) => ({ ...all, open: () => gone, list: () => gone }))
      )
      const world = yield* serve({ program: answering("Lima"), threads: broken })
      const caller = yield* world.caller()
      for (const answer of [yield* caller.get("/api/v1/threads"), yield* caller.post(turn)])
        assert.deepStrictEqual([answer.status, answer.body.error.reason], [503, "ThreadsUnavailable"])
    })
  )
})
