/** Tests that readings are shared without a difference to those who ask: no answer is stale, or of another key. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as SharedReadings from "../src/internal/SharedReadings.ts"

/** Lets all fibers go on as far as they can. */
const settled = Effect.promise(() => new Promise((resolve) => setImmediate(() => setImmediate(resolve))))

const leave = (fiber: Fiber.Fiber<unknown> | undefined) => Effect.andThen(Fiber.interrupt(fiber!), settled)

/** A store whose readings take until they are let go. Each returns the value that it found at its beginning. */
const makeStore = () => {
  const store = { value: 1, begun: 0, open: [] as Array<Deferred.Deferred<void>> }
  const read: Effect.Effect<number> = Effect.suspend(() => {
    const { value } = store
    const gate = Deferred.makeUnsafe<void>()
    store.begun += 1
    store.open.push(gate)
    return Effect.as(Deferred.await(gate), value)
  })
  /** Ends the oldest reading under way. */
  const letGo = Effect.suspend(() => {
    const gate = store.open.shift()
    assert.isDefined(gate, "no reading is under way")
    return Effect.andThen(Deferred.succeed(gate!, undefined), settled)
  })
  return { store, read, letGo }
}

const begin = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

const start = <A, E>(effect: Effect.Effect<A, E>) => Effect.tap(begin(effect), () => settled)

describe("SharedReadings", () => {
  it.effect(
    "reads once for 200 who ask at the same time, once for 200 meanwhile, and again for one later",
    () =>
      Effect.gen(function* () {
        const { letGo, read, store } = makeStore()
        const shared = SharedReadings.make<number, never>()
        const all = Effect.forEach(Array.from({ length: 200 }), () => begin(shared("a", read)))
        const asking = yield* all
        yield* settled
        asking.push(...(yield* all))
        yield* settled
        assert.strictEqual(store.begun, 1)
        yield* letGo
        assert.strictEqual(store.begun, 2)
        yield* letGo
        assert.deepStrictEqual(new Set(yield* Effect.forEach(asking, Fiber.join)), new Set([1]))
        store.value = 2
        const later = yield* start(shared("a", read))
        assert.strictEqual(store.begun, 3)
        yield* letGo
        assert.strictEqual(yield* Fiber.join(later), 2)
      })
  )

  it.effect("never answers with what was read before the question", () =>
    Effect.gen(function* () {
      const { letGo, read, store } = makeStore()
      const shared = SharedReadings.make<number, never>()
      const before = yield* start(shared("a", read))
      store.value = 2
      const after = yield* start(shared("a", read))
      yield* letGo
      assert.strictEqual(yield* Fiber.join(before), 1)
      store.value = 3
      const last = yield* start(shared("a", read))
      yield* letGo
      assert.strictEqual(yield* Fiber.join(after), 2)
      yield* letGo
      assert.strictEqual(yield* Fiber.join(last), 3)
    })
  )

  it.effect("answers in the order of the questions", () =>
    Effect.gen(function* () {
      const { letGo, read } = makeStore()
      const shared = SharedReadings.make<number, never>()
      const order: Array<number> = []
      const asking = yield* Effect.forEach([1, 2, 3, 4], (one) =>
        begin(Effect.tap(shared("a", read), () => Effect.sync(() => order.push(one))))
      )
      yield* settled
      yield* letGo
      yield* Effect.forEach(asking, Fiber.join)
      assert.deepStrictEqual(order, [1, 2, 3, 4])
    })
  )

  it.effect("reads separately for each key", () =>
    Effect.gen(function* () {
      const shared = SharedReadings.make<string, never>()
      const keys = Array.from({ length: 100 }, (_, at) => `key ${at % 7}`)
      const found = yield* Effect.forEach(
        keys,
        (key) => shared(key, Effect.as(Effect.yieldNow, `of ${key}`)),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        found,
        keys.map((key) => `of ${key}`)
      )
    })
  )

  it.effect("reads again for the others if the one that reads is interrupted", () =>
    Effect.gen(function* () {
      const { letGo, read, store } = makeStore()
      const shared = SharedReadings.make<number, never>()
      const [first, second, third, fourth] = yield* Effect.forEach([1, 2, 3, 4], () =>
        start(shared("a", read))
      )
      // Those who wait do not keep a reader that left, and one that left does not read.
      yield* leave(second)
      yield* leave(first)
      assert.strictEqual(store.begun, 2)
      store.value = 2
      yield* leave(third)
      assert.strictEqual(store.begun, 3)
      yield* letGo
      yield* letGo
      yield* letGo
      assert.strictEqual(yield* Fiber.join(fourth!), 2)
      assert.strictEqual(store.begun, 3)
    })
  )

  it.effect("does not let one read that has left while it shared a reading", () =>
    Effect.gen(function* () {
      const { letGo, read, store } = makeStore()
      const shared = SharedReadings.make<number, never>()
      const [, second, third, fourth] = yield* Effect.forEach([1, 2, 3, 4], () => start(shared("a", read)))
      yield* letGo
      yield* leave(third)
      yield* leave(second)
      assert.strictEqual(store.begun, 3)
      yield* letGo
      yield* letGo
      assert.isDefined(fourth!.pollUnsafe())
    })
  )

  it.effect("answers all who share a reading with its failure, and the next ones with their own", () =>
    Effect.gen(function* () {
      const shared = SharedReadings.make<number, string>()
      const gate = yield* Deferred.make<void>()
      const first = yield* start(shared("a", Effect.as(Deferred.await(gate), 1)))
      const others = yield* Effect.forEach([2, 3], () =>
        start(shared("a", Effect.andThen(Effect.yieldNow, Effect.fail("gone"))))
      )
      yield* Deferred.succeed(gate, undefined)
      assert.strictEqual(yield* Fiber.join(first), 1)
      for (const one of others) assert.deepStrictEqual(yield* Fiber.await(one), Exit.fail("gone"))
      assert.strictEqual(yield* shared("a", Effect.succeed(4)), 4)
    })
  )

  it.effect("does not wait long for a reading that is stuck", () =>
    Effect.gen(function* () {
      const shared = SharedReadings.make<number, never>()
      const stuck = yield* start(shared("a", Effect.never))
      const left = yield* start(shared("a", Effect.succeed(1)))
      yield* Fiber.interrupt(left)
      const others = yield* Effect.forEach([2, 2], (value) => start(shared("a", Effect.succeed(value))))
      yield* TestClock.adjust(`${SharedReadings.patienceMillis - 1} millis`)
      assert.isUndefined(others[0]?.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      yield* settled
      assert.deepStrictEqual(yield* Effect.forEach(others, Fiber.join), [2, 2])
      yield* Fiber.interrupt(stuck)
      assert.strictEqual(yield* shared("a", Effect.succeed(3)), 3)
    })
  )

  const Step = Schema.Literals(["ask", "change", "let go", "leave first", "leave last", "wait"])

  it.effect.prop(
    "answers everyone who stays, in any order of events, and with nothing older than the question",
    [Schema.Array(Step).check(Schema.isMinLength(8), Schema.isMaxLength(40))],
    ([steps]) =>
      Effect.gen(function* () {
        const { letGo, read, store } = makeStore()
        const shared = SharedReadings.make<number, never>()
        const asking: Array<{ readonly fiber: Fiber.Fiber<number>; readonly from: number }> = []
        for (const step of steps) {
          if (step === "ask") asking.push({ fiber: yield* start(shared("a", read)), from: store.value })
          if (step === "change") store.value += 1
          if (step === "let go" && store.open.length > 0) yield* letGo
          const leaving =
            step === "leave first" ? asking.shift() : step === "leave last" ? asking.pop() : undefined
          if (leaving !== undefined) yield* leave(leaving.fiber)
          if (step === "wait") yield* TestClock.adjust("60 millis")
        }
        while (store.open.length > 0) yield* letGo
        for (const { fiber, from } of asking) {
          yield* settled
          assert.isDefined(fiber.pollUnsafe(), "one who asked has no answer")
          assert.isAtLeast(yield* Fiber.join(fiber), from)
        }
        // Nothing is kept.
        store.value += 1
        const last = yield* start(shared("a", read))
        yield* letGo
        assert.strictEqual(yield* Fiber.join(last), store.value)
      }),
    { arbitrary: { runs: 500 } }
  )
})
