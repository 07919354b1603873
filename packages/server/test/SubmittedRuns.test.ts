/** A server that submits its runs to a queue of many hosts. */
import { RunId } from "@cogni/sandbox-core/RunId"
import type { JournalEvent } from "@cogni/sandbox-core/RunJournal"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import { type GraphRunRequest } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { GraphRefused } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import {
  type SubmittedEnd,
  type SubmittedRun,
  SubmittedRuns,
  SubmittedRunsUnavailable
} from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import * as IdempotencyKeys from "@cogni/sandbox-server/IdempotencyKeys"
import { assert, describe, it } from "@effect/vitest"
import * as Await from "../../../test/harness/Await.ts"
import { Effect, Fiber, Layer } from "effect"
import { question, serve } from "./ServerWorld.ts"

const path = "/api/v1/runs"

const away = new SubmittedRunsUnavailable({ detail: "the secret address is away", remedy: "Start it" })

/** A queue in memory. The test plays the hosts. */
const makeQueue = () => {
  const runs = new Map<string, SubmittedRun>()
  const requests: Array<GraphRunRequest> = []
  const cancelled: Array<string> = []
  let isAway = false
  let isBlind = false
  let looks = 0
  const answered = <A>(answer: () => A) =>
    Effect.suspend(() => (isAway ? Effect.fail(away) : Effect.succeed(answer())))
  const layer = Layer.succeed(SubmittedRuns, {
    submit: (request, { grantId, runId }) =>
      Effect.suspend(() => {
        if (isAway)
          return Effect.fail(
            new GraphRefused({
              error: "internal",
              reason: "TemporalUnreachable",
              detail: "Temporal is away",
              retrySeconds: 5
            })
          )
        if (runs.has(runId))
          return Effect.fail(new GraphRefused({ error: "aborted", reason: "RunIdInUse", detail: "used" }))
        const { caller, graphId, model } = request
        requests.push(request)
        runs.set(runId, { runId, billingAccountId: caller.billingAccountId, grantId, graphId, model })
        return Effect.void
      }),
    find: (runId) =>
      answered(() => {
        looks += 1
        return isBlind ? undefined : runs.get(runId)
      }),
    ended: (runId) =>
      Await.until(
        `${runId} has ended`,
        Effect.sync(() => runs.get(runId)?.end !== undefined)
      ),
    underWay: (account) =>
      answered(() =>
        [...runs.values()].filter(({ billingAccountId, end }) => billingAccountId === account && !end)
      ),
    cancel: (runId) => answered(() => (runs.has(runId) ? (cancelled.push(runId), true) : false))
  })
  return {
    layer,
    requests,
    cancelled,
    add: (run: SubmittedRun) => void runs.set(run.runId, run),
    end: (runId: string, end: SubmittedEnd) => void runs.set(runId, { ...runs.get(runId)!, end }),
    leave: () => void (isAway = true),
    looked: (count: number) =>
      Await.until(
        `the queue was asked ${count} times`,
        Effect.sync(() => looks >= count)
      ),
    /** Finds no run any more, like a queue that is asked at the same moment. */
    blind: () => void (isBlind = true)
  }
}

const world = Effect.gen(function* () {
  const queue = makeQueue()
  const served = yield* serve({ submitted: queue.layer, keyPrefix: IdempotencyKeys.submittedPrefix })
  const one = yield* served.caller()
  const write = (runId: string, ...events: ReadonlyArray<JournalEvent>) =>
    Effect.forEach(events, (event) => served.journal.write(RunId.make(runId), event), { discard: true })
  const begin = Effect.map(one.send(path, question), ({ body }): string => body.runId)
  return { ...served, queue, one, write, begin }
})

const idsIn = (text: string) => [...text.matchAll(/^id: (\d+)$/gmu)].map(([, id]) => Number(id))

describe("a server with a queue", () => {
  it.live("submits a run, shows it while it waits, and cancels it, only for its account", () =>
    Effect.gen(function* () {
      const { caller, one, queue, roster } = yield* world
      const { body, headers, status } = yield* one.send(path, question)
      assert.strictEqual(status, 202)
      assert.strictEqual(headers.get("location"), `${path}/${body.runId}`)
      assert.lengthOf(yield* roster.list, 0)
      assert.strictEqual(`${queue.requests[0]?.graphId} ${queue.requests[0]?.model}`, "sandbox:agent gpt")
      const view = (yield* one.get(`${path}/${body.runId}`)).body
      assert.deepInclude(view, { runId: body.runId, status: "starting", graphId: "sandbox:agent" })
      assert.lengthOf((yield* one.get(path)).body.runs, 1)
      assert.lengthOf((yield* one.get(`${path}?status=running`)).body.runs, 0)
      const other = yield* caller({ billingAccountId: "other" })
      assert.lengthOf((yield* other.get(path)).body.runs, 0)
      for (const answer of [
        yield* other.get(`${path}/${body.runId}`),
        yield* other.get(`${path}/${body.runId}/events`),
        yield* other.delete(`${path}/${body.runId}`)
      ])
        assert.strictEqual(answer.status, 404)
      assert.deepStrictEqual(queue.cancelled, [])
      assert.strictEqual((yield* one.delete(`${path}/${body.runId}`)).status, 202)
      assert.deepStrictEqual(queue.cancelled, [body.runId])
    })
  )

  it.live("cancels no run of another account for which an account has made a record", () =>
    Effect.gen(function* () {
      const { caller, queue, store } = yield* world
      const runId = RunId.make("run-of-another")
      queue.add({ runId, billingAccountId: "other", grantId: "g", graphId: "sandbox:agent", model: "gpt" })
      const one = yield* caller()
      assert.strictEqual((yield* one.delete(`${path}/${runId}`)).status, 404)
      const llm = { model: "gpt", identity: { billingAccountId: "acct", attempt: 0 } }
      const spec = yield* SpecDecoder.decode({ runId, image: "agent", argv: ["true"], llm })
      yield* Effect.scoped(store.open(runId, spec))
      const own = yield* one.get(`${path}/${runId}`)
      assert.deepStrictEqual([own.status, own.body.status], [200, "running"])
      assert.strictEqual((yield* one.delete(`${path}/${runId}`)).status, 404)
      assert.deepStrictEqual(queue.cancelled, [])
    })
  )

  it.live("says who can cancel a run under way for which the queue names no account", () =>
    Effect.gen(function* () {
      const { one, store } = yield* world
      const runId = RunId.make("run-without-owner")
      const llm = { model: "gpt", identity: { billingAccountId: "acct", attempt: 0 } }
      const spec = yield* SpecDecoder.decode({ runId, image: "agent", argv: ["true"], llm })
      yield* Effect.scoped(store.open(runId, spec))
      const { body, status } = yield* one.delete(`${path}/${runId}`)
      assert.deepStrictEqual([status, body.error.reason], [409, "RunElsewhere"])
      assert.include(body.error.message, "names no account")
    })
  )

  it.live("lists all runs that wait, page by page, and reads no more records than it shows", () =>
    Effect.gen(function* () {
      const { one, queue, store } = yield* world
      const ids = Array.from({ length: 30 }, (_, at) => RunId.make(`waiting-${String(at).padStart(2, "0")}`))
      for (const [at, runId] of ids.entries())
        queue.add({
          runId,
          billingAccountId: "acct",
          grantId: "g",
          graphId: "sandbox:agent",
          model: "gpt",
          submittedAt: `2026-01-01T00:00:${String(59 - at)}.000Z`
        })
      const recorded = RunId.make("recorded-run-1")
      const llm = { model: "gpt", identity: { billingAccountId: "acct", attempt: 0 } }
      const spec = yield* SpecDecoder.decode({ runId: recorded, image: "agent", argv: ["true"], llm })
      yield* Effect.scoped(store.open(recorded, spec))
      let reads = 0
      const { describe: read } = store
      Object.assign(store, {
        describe: (id: RunId) =>
          Effect.andThen(
            Effect.sync(() => (reads += 1)),
            read(id)
          )
      })
      const seen: Array<string> = []
      for (let next: string | undefined = "", pages = 0; next !== undefined && pages < 10; pages++) {
        const query = next === "" ? "" : `&after=${next}`
        const page: { readonly runs: ReadonlyArray<{ readonly runId: string }>; readonly next?: string } =
          (yield* one.get(`${path}?limit=7${query}`)).body
        seen.push(...page.runs.map(({ runId }) => runId))
        next = page.next
        assert.isAtMost(reads, 7)
        reads = 0
      }
      assert.deepStrictEqual(seen, [...ids, recorded])
      const bad = yield* one.get(`${path}?after=starting.x`)
      assert.strictEqual(bad.body.error.reason, "CursorInvalid")
    })
  )

  it.live("submits a run once for a key, with an ID that the server of a host accepts", () =>
    Effect.gen(function* () {
      const { one, queue } = yield* world
      const key = { "idempotency-key": "press" }
      const all = yield* Effect.all(
        [1, 2, 3].map(() => one.send(path, question, key)),
        { concurrency: 3 }
      )
      assert.lengthOf(queue.requests, 1)
      const ids = new Set(all.map(({ body }) => body.runId))
      assert.strictEqual(ids.size, 1)
      assert.isTrue((yield* one.send(path, question, key)).body.isRepeated)
      queue.blind()
      assert.isTrue((yield* one.send(path, question, key)).body.isRepeated)
      assert.lengthOf(queue.requests, 1)
      const [id = ""] = ids
      assert.match(id, /^durable-[0-9a-f]{32}$/u)
      assert.isFalse(IdempotencyKeys.isReserved(id))
      for (const runId of ["durable-mine", "nightly-20261128t030000z"]) {
        const named = yield* one.send(path, { ...question, runId })
        assert.deepStrictEqual([named.status, named.body.error.reason], [400, "RunIdReserved"])
      }
      const twice = { ...question, runId: "run-named-by-me" }
      assert.strictEqual((yield* one.send(path, twice)).status, 202)
      const again = yield* one.send(path, twice)
      assert.deepStrictEqual([again.status, again.body.error.reason], [409, "RunIdInUse"])
    })
  )

  it.live("streams the events of a run from its submission on, and resumes after an ID", () =>
    Effect.gen(function* () {
      const { begin, journal, one, write } = yield* world
      const runId = yield* begin
      const reading = yield* Effect.forkChild(one.get(`${path}/${runId}/events`))
      yield* write(runId, { type: "run.started" }, { type: "message.written", text: "Lima" })
      yield* write(runId, { type: "run.ended", status: "exited", exitCode: 0 })
      yield* journal.close(RunId.make(runId))
      const whole = yield* Fiber.join(reading)
      assert.deepStrictEqual(idsIn(whole.body), [1, 2, 3])
      const rest = yield* one.get(`${path}/${runId}/events`, { "last-event-id": "2" })
      assert.deepStrictEqual(idsIn(rest.body), [3])
    })
  )

  it.live("streams no event of another account that uses the ID of a run that waits", () =>
    Effect.gen(function* () {
      const { begin, journal, one, queue, store, write } = yield* world
      const runId = RunId.make(yield* begin)
      const reading = yield* Effect.forkChild(one.get(`${path}/${runId}/events`))
      // Once for the request, and once for its events.
      yield* queue.looked(2)
      const llm = { model: "gpt", identity: { billingAccountId: "other", attempt: 0 } }
      const spec = yield* SpecDecoder.decode({ runId, image: "agent", argv: ["true"], llm })
      yield* Effect.scoped(store.open(runId, spec))
      yield* write(runId, { type: "run.started" }, { type: "message.written", text: "Lima" })
      yield* journal.close(runId)
      const { body } = yield* Fiber.join(reading)
      assert.deepStrictEqual(idsIn(body), [])
      assert.notInclude(body, "Lima")
    })
  )

  it.live("waits for the last events of a host whose run has ended already", () =>
    Effect.gen(function* () {
      const { begin, one, queue, write } = yield* world
      const runId = yield* begin
      queue.end(runId, { state: "abandoned", reason: "HostLost" })
      const reading = yield* Effect.forkChild(one.get(`${path}/${runId}/events`))
      // Once for the request, and once for its events.
      yield* queue.looked(2)
      yield* write(runId, { type: "run.started" }, { type: "message.written", text: "Lima" })
      yield* write(runId, { type: "run.ended", status: "exited", exitCode: 0 })
      const { body } = yield* Fiber.join(reading)
      assert.deepStrictEqual(idsIn(body), [1, 2, 3])
      assert.notInclude(body, "HostLost")
    })
  )

  it.live("ends no events of a run whose ID another account has submitted", () =>
    Effect.gen(function* () {
      const { journal, one, queue, store, write } = yield* world
      const runId = RunId.make("run-of-two")
      const llm = { model: "gpt", identity: { billingAccountId: "acct", attempt: 0 } }
      const spec = yield* SpecDecoder.decode({ runId, image: "agent", argv: ["true"], llm })
      yield* Effect.scoped(store.open(runId, spec))
      yield* write(runId, { type: "run.started" })
      queue.add({ runId, billingAccountId: "other", grantId: "g", graphId: "sandbox:agent", model: "gpt" })
      queue.end(runId, { state: "failed", reason: "RunIdInUse" })
      const reading = yield* Effect.forkChild(one.get(`${path}/${runId}/events`))
      // Once for the request, and twice for its events: then the end would be believed.
      yield* queue.looked(3)
      yield* write(runId, { type: "message.written", text: "Lima" })
      yield* write(runId, { type: "run.ended", status: "exited", exitCode: 0 })
      yield* journal.close(runId)
      const { body } = yield* Fiber.join(reading)
      assert.include(body, "Lima")
      assert.notInclude(body, "RunIdInUse")
    })
  )

  it.live("ends the events and the view of a run that no host had", () =>
    Effect.gen(function* () {
      const { begin, one, queue } = yield* world
      const runId = yield* begin
      queue.end(runId, { state: "failed", reason: "NoRoom" })
      const { body } = yield* one.get(`${path}/${runId}/events`)
      assert.include(body, '"type":"run.ended","status":"failed","reason":"NoRoom"')
      const view = (yield* one.get(`${path}/${runId}`)).body
      assert.deepInclude(view, { status: "failed", error: { reason: "NoRoom" } })
      const over = yield* one.delete(`${path}/${runId}`)
      assert.deepStrictEqual([over.status, over.body.error.reason], [409, "RunOver"])
    })
  )

  it.live("says that the events of a run are only on its host, some seconds after it began there", () =>
    Effect.gen(function* () {
      const { begin, one, store } = yield* world
      const runId = RunId.make(yield* begin)
      const identity = { billingAccountId: "acct", attempt: 0 }
      const llm = { model: "gpt", identity }
      const spec = yield* SpecDecoder.decode({ runId, image: "agent", argv: ["true"], llm })
      yield* Effect.gen(function* () {
        const { owner, save } = yield* store.open(runId, spec)
        const startedAt = "2026-01-01T00:00:00.000Z"
        yield* save({ runId, spec, owner, startedAt, outcome: { status: "running" }, timings: [] })
      }).pipe(Effect.scoped)
      const answer = yield* one.get(`${path}/${runId}/events`)
      assert.deepStrictEqual([answer.status, answer.body.error.reason], [409, "EventsNotShared"])
      assert.include(answer.body.error.message, "--share-events")
    })
  )

  it.live("shows a run as lost whose host can no longer write its record", () =>
    Effect.gen(function* () {
      const { begin, one, queue, store } = yield* world
      const runId = RunId.make(yield* begin)
      const identity = { billingAccountId: "acct", attempt: 0 }
      const spec = yield* SpecDecoder.decode({
        runId,
        image: "agent",
        argv: ["true"],
        llm: { model: "gpt", identity }
      })
      yield* Effect.scoped(store.open(runId, spec))
      assert.strictEqual((yield* one.get(`${path}/${runId}`)).body.status, "running")
      queue.end(runId, { state: "abandoned", reason: "HostLost" })
      const view = (yield* one.get(`${path}/${runId}`)).body
      assert.deepInclude(view, { status: "abandoned", error: { reason: "HostLost" } })
      // Without its queue, there is the record.
      queue.leave()
      assert.strictEqual((yield* one.get(`${path}/${runId}`)).body.status, "running")
    })
  )

  it.live("answers 503 without details while the queue does not answer", () =>
    Effect.gen(function* () {
      const { begin, one, queue } = yield* world
      const runId = yield* begin
      queue.leave()
      const started = yield* one.send(path, question)
      assert.deepStrictEqual(
        [started.status, started.body.error.reason, started.headers.get("retry-after")],
        [503, "TemporalUnreachable", "5"]
      )
      const found = yield* one.get(`${path}/${runId}`)
      assert.strictEqual(found.status, 503)
      assert.notInclude(JSON.stringify(found.body), "secret address")
      // The records are listed without it.
      assert.deepStrictEqual((yield* one.get(path)).body.runs, [])
    })
  )
})
