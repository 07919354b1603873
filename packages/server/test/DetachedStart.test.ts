/** Runs that live on without their caller. */
import { ThreadBusy } from "@cogni/sandbox-graph-provider/threads/ThreadError"
import * as ThreadFiles from "@cogni/sandbox-graph-provider/threads/ThreadFiles"
import * as ThreadStore from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import * as Threads from "@cogni/sandbox-graph-provider/threads/Threads"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Scope } from "effect"
import * as Await from "../../../test/harness/Await.ts"
import { answering, envelope, lasting, question, serve } from "./ServerWorld.ts"

const path = "/api/v1/runs"

const key = (value: string) => ({ "idempotency-key": value })

/** A server whose agents wait until the test ends them. */
const waiting = Effect.gen(function* () {
  const end = yield* Deferred.make<void>()
  const world = yield* serve({
    program: ({ stdout }) => Deferred.await(end).pipe(Effect.andThen(stdout(envelope("Lima"))), Effect.as(0))
  })
  return { ...world, end: Deferred.succeed(end, undefined), one: yield* world.caller() }
})

/** Threads that are free when a run is checked, and taken by another turn when it starts, until `free` is set. */
const takenMeanwhile = (timesMax = Infinity, until: Effect.Effect<void> = Effect.void) => {
  let opened = 0
  let taken = 0
  let isFree = false
  const layer = Layer.effect(
    Threads.Threads,
    Effect.map(Threads.Threads, (all) => ({
      ...all,
      open: (asked: Parameters<typeof all.open>[0]) =>
        Effect.suspend(() =>
          opened++ % 2 === 1 && !isFree && taken++ < timesMax
            ? Effect.andThen(until, Effect.fail(new ThreadBusy({ retrySeconds: 30 })))
            : all.open(asked)
        )
    }))
  ).pipe(
    Layer.provide(
      Threads.layer().pipe(Layer.provide(Layer.merge(ThreadStore.layerMemory, ThreadFiles.layerMemory)))
    )
  )
  return { layer, free: () => void (isFree = true) }
}

describe("a run that is started without a reader", () => {
  it.effect("is answered at once with its address, lives on, and ends with its answer", () =>
    Effect.gen(function* () {
      const { end, left, one, roster } = yield* waiting
      const { body, headers, status } = yield* one.send(path, question)
      assert.strictEqual(status, 202)
      const { runId } = body
      assert.deepStrictEqual(body, { runId, isRepeated: false })
      assert.strictEqual(headers.get("location"), `${path}/${runId}`)
      assert.strictEqual(headers.get("x-cogni-run-id"), runId)
      assert.lengthOf(yield* roster.list, 1)
      assert.strictEqual((yield* one.get(`${path}/${runId}/answer`)).body.error.reason, "AnswerNotKept")
      yield* end
      yield* left(runId)
      const view = (yield* one.get(`${path}/${runId}`)).body
      assert.strictEqual(view.status, "succeeded")
      assert.deepStrictEqual(view.answer, { chars: 4, truncated: false })
      const answer = yield* one.get(`${path}/${runId}/answer`)
      assert.strictEqual(answer.body, "Lima")
      assert.strictEqual(answer.headers.get("content-type"), "text/plain; charset=utf-8")
      assert.strictEqual(answer.headers.get("x-content-type-options"), "nosniff")
      const stranger = yield* (yield* serve()).caller()
      assert.strictEqual((yield* stranger.get(`${path}/${runId}/answer`)).status, 404)
      const [listed] = (yield* one.get(path)).body.runs
      assert.isUndefined(listed.answer)
    })
  )

  it.effect(
    "is started once for a key, also by two requests at the same time, and has an ID of its account",
    () =>
      Effect.gen(function* () {
        const { caller, end, left, one, roster, store } = yield* waiting
        const press = one.send(path, question, key("press"))
        const both = yield* Effect.all([press, press, press], { concurrency: "unbounded" })
        assert.deepStrictEqual(
          both.map(({ status }) => status),
          [202, 202, 202]
        )
        const runId = both[0].body.runId
        assert.strictEqual(new Set(both.map(({ body }) => body.runId)).size, 1)
        assert.lengthOf(
          both.filter(({ body }) => !body.isRepeated),
          1
        )
        assert.lengthOf(yield* roster.list, 1)
        const other = yield* caller({ billingAccountId: "other" })
        const theirs = (yield* other.send(path, question, key("press"))).body
        assert.isFalse(theirs.isRepeated)
        assert.notStrictEqual(theirs.runId, runId)
        yield* end
        yield* left(runId)
        yield* left(theirs.runId)
        // Its record says so too.
        assert.deepStrictEqual((yield* press).body, { runId, isRepeated: true })
        assert.lengthOf(yield* Effect.orDie(store.list), 2)
      })
  )

  it.effect("is refused like any other, and the same key may start it later", () =>
    Effect.gen(function* () {
      const { end, grant, left, one, roster, url } = yield* waiting
      const weak = yield* Effect.orDie(grant({ allowSandbox: false }))
      const refused = yield* Effect.promise(() =>
        fetch(`${url}${path}`, {
          method: "POST",
          headers: { authorization: `Bearer ${weak.token}`, "content-type": "application/json", ...key("k") },
          body: JSON.stringify(question)
        })
      )
      assert.strictEqual(refused.status, 403)
      const send = (body: object) => one.send(path, body, key("k"))
      for (const [body, status, reason] of [
        [{ ...question, account: "victim" }, 400, "BodyInvalid"],
        [{ ...question, graphId: "sandbox:none" }, 404, undefined],
        [{ ...question, model: "not-offered" }, 403, "ModelNotGranted"]
      ] as const) {
        const answer = yield* send(body)
        assert.deepStrictEqual(
          [status, reason ?? answer.body.error.reason],
          [answer.status, answer.body.error.reason]
        )
      }
      assert.lengthOf(yield* roster.list, 0)
      const { runId } = (yield* send(question)).body
      yield* end
      yield* left(runId)
    })
  )

  it.effect("counts for the limits of its grant until it has ended, and says when to try again", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: lasting, limits: { runsPerGrantMax: 1 } })
      const one = yield* world.caller()
      const { runId } = (yield* one.send(path, question)).body
      const refused = yield* one.send(path, question, key("second"))
      assert.strictEqual(refused.status, 429)
      assert.isNotNull(refused.headers.get("retry-after"))
      yield* one.delete(`${path}/${runId}`)
      yield* world.left(runId)
      const second = (yield* one.send(path, question, key("second"))).body
      assert.isFalse(second.isRepeated)
      yield* one.delete(`${path}/${second.runId}`)
      yield* world.left(second.runId)
    })
  )

  it.effect("is cancelled by its account, and by the end of the server", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const world = yield* Scope.provide(serve({ program: lasting, limits: { drainSecondsMax: 0 } }), scope)
      const one = yield* world.caller()
      const first = (yield* one.send(path, question)).body.runId
      assert.strictEqual((yield* one.delete(`${path}/${first}`)).status, 202)
      yield* world.left(first)
      const second = (yield* one.send(path, question)).body.runId
      yield* Await.until(
        "the run has a record",
        Effect.map(Effect.orDie(world.store.describe(second)), (found) => found !== undefined)
      )
      yield* Scope.close(scope, Exit.void)
      for (const runId of [first, second])
        assert.notStrictEqual((yield* Effect.orDie(world.store.describe(runId)))?.outcome.status, "running")
    })
  )

  it.effect("keeps the beginning of a long answer, and says that it is not whole", () =>
    Effect.gen(function* () {
      const text = "é".repeat(70_000)
      const world = yield* serve({ program: answering(text) })
      const one = yield* world.caller()
      const { runId } = yield* one.chat()
      assert.deepStrictEqual((yield* one.get(`${path}/${runId}`)).body.answer, {
        chars: 70_000,
        truncated: true
      })
      assert.strictEqual((yield* one.get(`${path}/${runId}/answer`)).body, text.slice(0, 65_536))
    })
  )

  it.effect("is refused if its thread was taken between the check and the start, and may be sent again", () =>
    Effect.gen(function* () {
      const { free, layer } = takenMeanwhile()
      const world = yield* serve({ program: answering("Lima"), threads: layer })
      const one = yield* world.caller()
      const send = one.send(path, { ...question, threadId: "t", remember: true }, key("again"))
      const refused = yield* send
      assert.deepStrictEqual([refused.status, refused.body.error?.reason], [429, "ThreadBusy"])
      assert.isNotNull(refused.headers.get("retry-after"))
      assert.lengthOf(yield* world.roster.list, 0)
      free()
      const { body, status } = yield* send
      assert.deepStrictEqual([status, body.isRepeated], [202, false])
      yield* world.left(body.runId)
      assert.strictEqual((yield* one.get(`${path}/${body.runId}`)).body.status, "succeeded")
    })
  )

  it.effect("is decided by its own grant, if the start that it waited for is refused", () =>
    Effect.gen(function* () {
      const [reached, refuse] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      const until = Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(refuse))
      const world = yield* serve({ program: answering("Lima"), threads: takenMeanwhile(1, until).layer })
      const [one, other] = [yield* world.caller(), yield* world.caller()]
      const body = { ...question, threadId: "t", remember: true }
      const first = yield* Effect.forkChild(one.send(path, body, key("k")), { startImmediately: true })
      yield* Deferred.await(reached)
      const second = yield* Effect.forkChild(other.send(path, body, key("k")), { startImmediately: true })
      // Other answers have come since, so that the second request most likely waits.
      for (let n = 0; n < 5; n++) yield* one.get(path)
      yield* Deferred.succeed(refuse, undefined)
      const refused = yield* Fiber.join(first)
      assert.deepStrictEqual([refused.status, refused.body.error?.reason], [429, "ThreadBusy"])
      assert.isNotNull(refused.headers.get("retry-after"))
      const started = yield* Fiber.join(second)
      assert.deepStrictEqual([started.status, started.body.isRepeated], [202, false])
      yield* world.left(started.body.runId)
    })
  )

  it.effect("is not promised for the run of a chat, which ends with its reader", () =>
    Effect.gen(function* () {
      const world = yield* serve({ program: lasting })
      const one = yield* world.caller()
      const { controller, runId } = yield* one.open(question, key("chat"))
      const refused = yield* one.send(path, question, key("chat"))
      assert.deepStrictEqual([refused.status, refused.body.error?.reason], [409, "RunUnderWay"])
      controller.abort()
      yield* world.left(runId)
    })
  )
})
