import { RunId } from "@cogni/sandbox-core/RunId"
import { type JournalEntry, pageOf, RunJournal } from "@cogni/sandbox-core/RunJournal"
import * as RunStore from "@cogni/sandbox-core/RunStore"
import { StoreUnavailable } from "@cogni/sandbox-core/SandboxError"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Stream } from "effect"
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

describe("JournalTail", () => {
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
      const { follow } = yield* JournalTail.make
      const ids = Effect.map(Stream.runCollect(follow(runId, 0)), (pieces) =>
        [
          ...Buffer.concat(pieces)
            .toString("utf8")
            .matchAll(/^id: (\d+)$/gmu)
        ].map(([, id]) => Number(id))
      )
      const all = entries.map(({ seq }) => seq)
      assert.deepStrictEqual(yield* ids, all)
      // The oldest entries have left the memory, so this reader needs the journal.
      isFailing = true
      assert.deepStrictEqual(yield* ids, all)
      assert.strictEqual(failures, 1)
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
        read: () => Effect.sync(() => void (count += 1))
      }
      return Effect.gen(function* () {
        const { follow } = yield* JournalTail.make
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
})
