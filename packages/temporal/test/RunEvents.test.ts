/** How the journal of a durable run is followed. `DurableGraphProvider.test.ts` tests what readers see of it. */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { layerMemory as storeMemory, RunStore } from "@cogni/sandbox-core/RunStore"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as RunEvents from "../src/internal/RunEvents.ts"

const runId = RunId.make("run-durable-events")

describe("the events of a durable run", () => {
  it.effect("are read at once when its outcome is known, and soon again", () =>
    Effect.gen(function* () {
      const journal = yield* RunJournal.RunJournal
      const store = yield* RunStore
      const llm = { model: "gpt", identity: { billingAccountId: "acme", attempt: 0 } }
      const spec = yield* SpecDecoder.decode({ image: "agent", argv: ["true"], llm })
      yield* Effect.scoped(store.open(runId, spec))
      yield* journal.write(runId, { type: "run.started" })
      const ended = yield* Deferred.make<void>()
      const heard: RunEvents.Heard = { text: "" }
      const following = yield* RunEvents.follow(
        { runId, billingAccountId: "acme", attemptsMax: 1, ended },
        heard,
        () => Effect.void
      ).pipe(Effect.forkScoped({ startImmediately: true }))
      yield* TestClock.adjust("1 second")
      yield* Deferred.succeed(ended, undefined)
      // The last entries are a moment behind the outcome.
      yield* TestClock.adjust("19 millis")
      yield* journal.write(runId, { type: "message.written", text: "In Peru." })
      yield* journal.write(runId, { type: "run.ended", status: "exited", exitCode: 0 })
      yield* journal.close(runId)
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(following)
      assert.strictEqual(heard.text, "In Peru.")
    }).pipe(Effect.provide(Layer.mergeAll(storeMemory, RunJournal.layerMemory)))
  )
})
