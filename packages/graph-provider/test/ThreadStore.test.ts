/** Threads in memory: the contract, and a hold that ends with its time. */
import { assert, it } from "@effect/vitest"
import { ThreadStoreContract } from "@cogni/sandbox-graph-provider/testing"
import * as Thread from "@cogni/sandbox-graph-provider/threads/Thread"
import * as ThreadStore from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import { Effect } from "effect"
import * as TestClock from "effect/testing/TestClock"

ThreadStoreContract.suite("memory", ThreadStore.layerMemory)

it.effect("frees a thread whose holder does not renew it", () =>
  Effect.gen(function* () {
    const store = yield* ThreadStore.ThreadStore
    const name = { billingAccountId: "acct", threadId: Thread.ThreadId.make("t") }
    const key = yield* Thread.keyOf(name)
    const first = { key, holder: "first" }
    yield* store.claim(name, first, 1)
    yield* TestClock.adjust(`${Thread.holdSeconds - 1} seconds`)
    yield* store.renew(first)
    yield* TestClock.adjust(`${Thread.holdSeconds - 1} seconds`)
    assert.strictEqual((yield* Effect.flip(store.claimKnown({ key, holder: "second" })))._tag, "ThreadBusy")
    yield* TestClock.adjust("1 seconds")
    yield* store.claimKnown({ key, holder: "second" })
    assert.strictEqual((yield* Effect.flip(store.renew(first)))._tag, "ThreadLost")
  }).pipe(Effect.provide(ThreadStore.layerMemory))
)
