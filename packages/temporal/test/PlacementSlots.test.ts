/** Questions for runs to place, as the SDK asks for permits. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, FiberSet } from "effect"
import * as PlacementSlots from "../src/internal/PlacementSlots.ts"

const world = Effect.gen(function* () {
  const room = yield* Deferred.make<void>()
  const notes: Array<boolean> = []
  const slots = PlacementSlots.make(
    { room: Deferred.await(room), waiting: (isWaiting) => Effect.sync(() => void notes.push(isWaiting)) },
    yield* FiberSet.makeRuntimePromise<never>()
  )
  const context = {
    slotType: "activity",
    taskQueue: "q",
    workerIdentity: "w",
    workerBuildId: "b",
    isSticky: false
  } as const
  const reserve = (signal = new AbortController().signal) => slots.reserveSlot(context, signal)
  return { room, notes, slots, reserve, context }
})

const slotInfo = { type: "activity", activityType: "place" } as const

describe("the questions for runs to place", () => {
  it.effect("are asked when there is room, and tell while they are open", () =>
    Effect.gen(function* () {
      const { context, notes, reserve, room, slots } = yield* world
      const asked = reserve()
      yield* Effect.yieldNow
      assert.deepStrictEqual(notes, [])
      yield* Deferred.succeed(room, undefined)
      const permit = yield* Effect.promise(() => asked)
      assert.deepStrictEqual(notes, [true])
      assert.isNull(slots.tryReserveSlot(context))
      slots.markSlotUsed({ slotInfo, permit })
      assert.deepStrictEqual(notes, [true, false])
    })
  )

  it.effect("stay open when the permit of an earlier one is given back", () =>
    Effect.gen(function* () {
      const { notes, reserve, room, slots } = yield* world
      yield* Deferred.succeed(room, undefined)
      const first = yield* Effect.promise(() => reserve())
      slots.markSlotUsed({ slotInfo, permit: first })
      const second = yield* Effect.promise(() => reserve())
      slots.releaseSlot({ slotInfo, permit: first })
      assert.deepStrictEqual(notes, [true, false, true])
      slots.releaseSlot({ permit: second })
      assert.deepStrictEqual(notes, [true, false, true, false])
    })
  )

  it.effect("end with the reason of the SDK if they are no longer wanted", () =>
    Effect.gen(function* () {
      const { reserve } = yield* world
      const aborting = new AbortController()
      const asked = reserve(aborting.signal).catch((error: unknown) => error)
      const reason = new Error("shut down")
      aborting.abort(reason)
      assert.strictEqual(yield* Effect.promise(() => asked), reason)
    })
  )
})
