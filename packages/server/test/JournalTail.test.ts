import { RunId } from "@cogni/sandbox-core/RunId"
import { type JournalEntry, type JournalRequest, pageOf, RunJournal } from "@cogni/sandbox-core/RunJournal"
import * as RunStore from "@cogni/sandbox-core/RunStore"
import { StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { assert, describe, it } from "@effect/vitest"
import { SubmittedRuns } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Deferred, Effect, Fiber, Layer, Logger, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as JournalTail from "../src/internal/JournalTail.ts"
import * as RunRoster from "../src/internal/RunRoster.ts"
import * as ServerLimits from "../src/ServerLimits.ts"

const runId = RunId.make("run-journaltail01")
const total = 1501

/** A run that has ended, with more entries than the server keeps in memory. */
const entries = Array.from({ length: total }, (_, index): JournalEntry => {
  const common = { seq: index + 1, at: "2026-01-01T00:00:00.000Z" }
  return index + 1 === total
    ? { ...common, type: "run.ended", status: "exited", exitCode: 0 }
    : { ...common, type: "message.written", text: "a" }
})

const layerOf = (journal: (typeof RunJournal)["Service"]) =>
  Layer.mergeAll(
    RunStore.layerMemory,
    RunRoster.layer(ServerLimits.defaults),
    Layer.succeed(RunJournal, journal)
  )

const idsIn = (pieces: ReadonlyArray<Uint8Array>) =>
  [
    ...Buffer.concat(pieces)
      .toString("utf8")
      .matchAll(/^id: (\d+)$/gmu)
  ].map(([, id]) => Number(id))

describe("JournalTail", () => {
  it.live("gives all readers in one place the same bytes, made once", () => {
    const journal = {
      write: () => Effect.void,
      close: () => Effect.void,
      hold: () => Effect.void,
      read: (request: JournalRequest) => Effect.succeed(pageOf(entries.slice(-20), request))
    }
    return Effect.gen(function* () {
      const { follow } = yield* JournalTail.make(ServerLimits.defaults)
      const follower = Effect.map(Stream.runCollect(follow(runId, total - 20)), (pieces) => [...pieces])
      const [first, ...others] = yield* Effect.all([follower, follower, follower], {
        concurrency: "unbounded"
      })
      assert.strictEqual(idsIn(first).length, 20)
      for (const pieces of others) {
        assert.strictEqual(pieces.length, first.length)
        pieces.forEach((piece, at) => assert.strictEqual(piece, first[at]))
      }
    }).pipe(Effect.scoped, Effect.provide(layerOf(journal)))
  })

  it.live("gives readers that are behind small pieces, which it reads once for all of them", () => {
    const large = Array.from({ length: 40 }, (_, index): JournalEntry => {
      const common = { seq: index + 1, at: "2026-01-01T00:00:00.000Z" }
      return index === 39
        ? { ...common, type: "run.ended", status: "exited", exitCode: 0 }
        : { ...common, type: "message.written", text: "\u0001".repeat(16_384) }
    })
    const reads = new Map<number, number>()
    const journal = {
      write: () => Effect.void,
      close: () => Effect.void,
      hold: () => Effect.void,
      read: (request: JournalRequest) =>
        Effect.promise(async () => {
          // As a disk does: meanwhile, other readers ask for the same.
          await new Promise((resolve) => setImmediate(resolve))
          if (request.bytesMax === JournalTail.pieceBytesMax) {
            const after = request.after ?? 0
            reads.set(after, (reads.get(after) ?? 0) + 1)
          }
          return pageOf(large, request)
        })
    }
    return Effect.gen(function* () {
      const { follow } = yield* JournalTail.make(ServerLimits.defaults)
      // The newest entries come from memory, the others from the journal.
      yield* Stream.runDrain(follow(runId, 0))
      reads.clear()
      const readers = yield* Effect.all(
        Array.from({ length: 20 }, () => Stream.runCollect(follow(runId, 0))),
        { concurrency: "unbounded" }
      )
      for (const pieces of readers) {
        assert.deepStrictEqual(
          idsIn(pieces),
          large.map(({ seq }) => seq)
        )
        for (const piece of pieces) assert.isAtMost(piece.byteLength, JournalTail.pieceBytesMax + 1000)
      }
      assert.isAbove(reads.size, 30)
      // Without sharing, each of them would be read 20 times.
      const all = [...reads.values()].reduce((sum, count) => sum + count, 0)
      assert.isBelow(all, 2 * reads.size)
      // All of them hold the same piece.
      assert.strictEqual(new Set(readers.map(([first]) => first)).size, 1)
    }).pipe(Effect.provide(layerOf(journal)), Effect.scoped)
  })

  it.live("loses no entry for a reader whose reading of the journal fails", () => {
    let failures = 0
    let isFailing = false
    const journal = {
      write: () => Effect.void,
      close: () => Effect.void,
      hold: () => Effect.void,
      read: (request: { readonly after?: number | undefined; readonly limit?: number | undefined }) =>
        Effect.suspend(() => {
          if (!isFailing) return Effect.succeed(pageOf(entries, request))
          isFailing = false
          failures += 1
          return Effect.fail(new StoreUnavailable({ detail: "is gone", remedy: "Start it" }))
        })
    }
    return Effect.gen(function* () {
      const { follow } = yield* JournalTail.make(ServerLimits.defaults)
      const idsAfter = (after: number) => Effect.map(Stream.runCollect(follow(runId, after)), idsIn)
      const all = entries.map(({ seq }) => seq)
      assert.deepStrictEqual(yield* idsAfter(0), all)
      // The oldest entries have left the memory, so this reader needs the journal: a page that no other one has read.
      isFailing = true
      assert.deepStrictEqual(yield* idsAfter(1), all.slice(1))
      assert.strictEqual(failures, 1)
    }).pipe(Effect.provide(layerOf(journal)), Effect.scoped)
  })

  it.effect("gives a reader of a quiet run a comment after each interval, until its time is over", () => {
    const journal = {
      write: () => Effect.void,
      close: () => Effect.void,
      hold: () => Effect.void,
      read: (request: JournalRequest) => Effect.succeed(pageOf(entries.slice(0, 1), request))
    }
    return Effect.gen(function* () {
      const { follow } = yield* JournalTail.make({ heartbeatSeconds: 15, followSecondsMax: 40 })
      const heard: Array<string> = []
      const reader = yield* Effect.forkScoped(
        Stream.runForEach(follow(runId, 0), (piece) =>
          Effect.sync(() => void heard.push(Buffer.from(piece).toString("utf8").split("\n")[0]!))
        ),
        { startImmediately: true }
      )
      yield* TestClock.adjust("14 seconds")
      assert.deepStrictEqual(heard, ["id: 1"])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(heard, ["id: 1", ": heartbeat"])
      yield* TestClock.adjust("24 seconds")
      assert.isUndefined(reader.pollUnsafe())
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(reader)
      assert.deepStrictEqual(heard, ["id: 1", ": heartbeat", ": heartbeat"])
    }).pipe(Effect.provide(layerOf(journal)), Effect.scoped)
  })

  for (const [readers, readings] of [
    [1, 50],
    [40, 50],
    [100, 20],
    [1000, 5]
  ] as const)
    it.effect(`reads the journal of a run ${readings} times in 10 s for ${readers} readers`, () => {
      let count = 0
      const journal = {
        write: () => Effect.void,
        close: () => Effect.void,
        hold: () => Effect.void,
        read: () =>
          Effect.sync(() => {
            count += 1
            return { entries: [], ended: false }
          })
      }
      return Effect.gen(function* () {
        const { follow } = yield* JournalTail.make(ServerLimits.defaults)
        yield* Effect.forEach(
          Array.from({ length: readers }),
          () => Effect.forkScoped(Stream.runDrain(follow(runId, 0)), { startImmediately: true }),
          { discard: true }
        )
        yield* TestClock.adjust("5 seconds")
        count = 0
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual(count, readings)
      }).pipe(Effect.provide(layerOf(journal)), Effect.scoped)
    })

  it.effect(
    "reads the journal of a waiting run ever less often, and five times a second when it has begun",
    () => {
      let count = 0
      let page: ReturnType<typeof pageOf> | undefined
      const journal = {
        write: () => Effect.void,
        close: () => Effect.void,
        hold: () => Effect.void,
        read: () =>
          Effect.sync(() => {
            count += 1
            return page
          })
      }
      return Effect.gen(function* () {
        const { follow } = yield* JournalTail.make(ServerLimits.defaults)
        yield* Effect.forkScoped(Stream.runDrain(follow(runId, 0)), { startImmediately: true })
        yield* TestClock.adjust("1 second")
        // After 0, 200 and 600 ms.
        assert.strictEqual(count, 3)
        yield* TestClock.adjust("9 seconds")
        count = 0
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual(count, 5)
        page = { entries: [], ended: false }
        yield* TestClock.adjust("2 seconds")
        count = 0
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual(count, 10)
      }).pipe(Effect.provide(layerOf(journal)), Effect.scoped)
    }
  )

  it.effect("reads the journal at once when the queue has ended its run, and soon again", () => {
    let page = pageOf(entries.slice(0, 1), {})
    const journal = {
      write: () => Effect.void,
      close: () => Effect.void,
      hold: () => Effect.void,
      read: ({ after = 0 }: JournalRequest) =>
        Effect.sync(() => (after === 0 ? page : { entries: [], ended: page.ended }))
    }
    return Effect.gen(function* () {
      const end = yield* Deferred.make<void>()
      const queue = { ended: () => Deferred.await(end), find: () => Effect.succeed(undefined) }
      const { follow } = yield* JournalTail.make(ServerLimits.defaults).pipe(
        Effect.provideService(SubmittedRuns, queue as unknown as (typeof SubmittedRuns)["Service"])
      )
      const reader = yield* Effect.forkScoped(Stream.runDrain(follow(runId, 0)), { startImmediately: true })
      yield* TestClock.adjust("1 second")
      yield* Deferred.succeed(end, undefined)
      // The last entries are a moment behind the end of the run.
      yield* TestClock.adjust("19 millis")
      page = { ...page, ended: true }
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(reader)
    }).pipe(Effect.provide(layerOf(journal)), Effect.scoped)
  })

  it.effect("warns once while the journals of any number of runs cannot be read", () => {
    let isFailing = true
    const heard: Array<string> = []
    const logger = Logger.make(({ message }) => void heard.push(String(message)))
    const journal = {
      write: () => Effect.void,
      close: () => Effect.void,
      hold: () => Effect.void,
      read: () =>
        Effect.suspend(() =>
          isFailing
            ? Effect.fail(new StoreUnavailable({ detail: "is gone", remedy: "Start it" }))
            : Effect.succeed({ entries: [], ended: false })
        )
    }
    return Effect.gen(function* () {
      const { follow } = yield* JournalTail.make(ServerLimits.defaults)
      for (const id of [runId, RunId.make("run-journaltail02"), RunId.make("run-journaltail03")])
        yield* Effect.forkScoped(Stream.runDrain(follow(id, 0)), { startImmediately: true })
      yield* TestClock.adjust("10 seconds")
      assert.lengthOf(heard, 1)
      assert.include(heard[0], "is gone")
      isFailing = false
      yield* TestClock.adjust("2 seconds")
      isFailing = true
      yield* TestClock.adjust("10 seconds")
      assert.lengthOf(heard, 2)
    }).pipe(Effect.provide(layerOf(journal)), Effect.scoped, Effect.provide(Logger.layer([logger])))
  })
})
