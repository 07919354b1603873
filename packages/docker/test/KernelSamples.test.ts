import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Exit, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as KernelSamples from "../src/internal/container/KernelSamples.ts"

/** Counts its samples. Each has changed while `isBusy`. */
const counter = () => {
  const one = { count: 0, isBusy: false, sample: () => ((one.count += 1), one.isBusy) }
  return one
}

/** Lets time pass in small steps, as timers do. */
const passing = (millis: number) =>
  Effect.forEach(Array.from({ length: millis / 5 }), () => TestClock.adjust("5 millis"), { discard: true })

it.effect("samples a container often while its values change", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    const busy = counter()
    busy.isBusy = true
    yield* samples.follow(busy.sample)
    yield* passing(1000)
    assert.isAtLeast(busy.count, 190)
  })
)

it.effect("samples a container rarely while nothing changes, and often again when something does", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    const idle = counter()
    yield* samples.follow(idle.sample)
    yield* passing(5000)
    const before = idle.count
    yield* passing(20_000)
    assert.isAtMost(idle.count - before, 11)
    idle.isBusy = true
    yield* passing(KernelSamples.pauseMillisMax)
    const again = idle.count
    yield* passing(1000)
    assert.isAtLeast(idle.count - again, 190)
  })
)

it.effect("samples a container more often whose most processes the kernel does not note", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    const idle = counter()
    yield* samples.follow(idle.sample, KernelSamples.uncountedPauseMillisMax)
    yield* passing(5000)
    const before = idle.count
    yield* passing(5000)
    assert.isAtLeast(idle.count - before, 45)
    assert.isAtMost(idle.count - before, 55)
  })
)

it.effect("goes on as often after the time of day was set back", () =>
  Effect.gen(function* () {
    const clock = yield* Clock.Clock
    let hours = 0
    const stepped: Clock.Clock = {
      ...clock,
      currentTimeNanos: Effect.map(
        clock.currentTimeNanos,
        (nanos) => nanos - BigInt(hours) * 3_600_000_000_000n
      )
    }
    yield* Effect.gen(function* () {
      const samples = yield* KernelSamples.make
      const busy = counter()
      busy.isBusy = true
      yield* samples.follow(busy.sample)
      yield* passing(100)
      const before = busy.count
      hours = 1
      yield* passing(1000)
      assert.isAtLeast(busy.count - before, 190)
    }).pipe(Effect.provideService(Clock.Clock, stepped))
  })
)

it.effect("goes on with all others if one sample has a defect, and tries that again later", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    const [busy, broken] = [counter(), counter()]
    busy.isBusy = true
    yield* samples.follow(() => {
      broken.sample()
      throw new Error("it has a defect")
    })
    yield* samples.follow(busy.sample)
    yield* passing(5000)
    assert.isAtLeast(busy.count, 900)
    assert.isAtLeast(broken.count, 2)
    assert.isAtMost(broken.count, 4)
  })
)

it.effect("samples a container soon after its start, while all others rest", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    yield* samples.follow(counter().sample)
    yield* passing(5000)
    const late = counter()
    yield* samples.follow(late.sample)
    yield* passing(10)
    assert.isAtLeast(late.count, 1)
  })
)

it.effect("takes no more samples in a second of many busy containers than of four", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    const all = Array.from({ length: 200 }, () => {
      const one = counter()
      one.isBusy = true
      return one
    })
    for (const one of all) yield* samples.follow(one.sample)
    yield* passing(1000)
    const before = all.reduce((sum, { count }) => sum + count, 0)
    yield* passing(1000)
    const taken = all.reduce((sum, { count }) => sum + count, 0) - before
    assert.isAtMost(taken, 1000)
    assert.isTrue(all.every(({ count }) => count > 0))
  })
)

it.effect("samples idle containers together, whenever each has begun", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    const moments = new Set<number>()
    const { currentTimeMillisUnsafe } = yield* Clock.Clock
    for (let index = 0; index < 100; index++) {
      yield* samples.follow(() => (moments.add(currentTimeMillisUnsafe()), false))
      yield* TestClock.adjust("37 millis")
    }
    yield* passing(20_000)
    moments.clear()
    yield* passing(20_000)
    assert.isAtMost(moments.size, 45, "of 1000 samples")
  })
)

it.effect("takes no sample after the scope has closed", () =>
  Effect.gen(function* () {
    const samples = yield* KernelSamples.make
    const scope = yield* Scope.make()
    const one = counter()
    one.isBusy = true
    yield* Scope.provide(samples.follow(one.sample), scope)
    yield* passing(50)
    yield* Scope.close(scope, Exit.void)
    const before = one.count
    yield* passing(50)
    assert.isAbove(before, 0)
    assert.strictEqual(one.count, before)
  })
)

describe("whileActive", () => {
  it("reads no values while no processor time is used, and all of them when some was", () => {
    const used = { micros: 10 }
    const all = counter()
    all.isBusy = true
    const sample = KernelSamples.whileActive(() => used.micros, all.sample)
    assert.isTrue(sample())
    assert.deepStrictEqual([sample(), sample(), all.count], [false, false, 1])
    used.micros += 0.001
    assert.deepStrictEqual([sample(), sample(), all.count], [true, false, 2])
  })

  it("reads the values again if time was used while they were read", () => {
    const used = { micros: 10 }
    const all = counter()
    const sample = KernelSamples.whileActive(
      () => used.micros,
      () => ((used.micros += 1), all.sample())
    )
    for (let time = 0; time < 3; time++) sample()
    assert.strictEqual(all.count, 3)
  })

  it("always reads the values if the processor time is unknown", () => {
    const all = counter()
    const sample = KernelSamples.whileActive(() => undefined, all.sample)
    for (let time = 0; time < 3; time++) sample()
    assert.strictEqual(all.count, 3)
  })

  it.effect("takes part in the rhythm of a container that wakes up after an hour", () =>
    Effect.gen(function* () {
      const samples = yield* KernelSamples.make
      const used = { micros: 10 }
      const all = counter()
      yield* samples.follow(KernelSamples.whileActive(() => used.micros, all.sample))
      yield* passing(5000)
      yield* TestClock.adjust("1 hour")
      const before = all.count
      assert.isAtMost(before, 1)
      used.micros += 1000
      all.isBusy = true
      yield* passing(KernelSamples.pauseMillisMax)
      assert.isAtLeast(all.count - before, 1, "the wake is seen within the longest pause")
    })
  )
})
