import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as PoolPolicy from "../src/PoolPolicy.ts"

const { defaults, noDemand, sandboxBytes } = PoolPolicy
const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const now = 10_000_000

/** A demand whose arrivals were this many seconds ago. */
const demandOf = (secondsAgo: ReadonlyArray<number>, more: Partial<PoolPolicy.Demand> = {}) => ({
  ...noDemand,
  arrivals: secondsAgo.map((seconds) => now - seconds * 1000).toSorted((a, b) => a - b),
  ...more
})

const factsOf = (
  demand: Readonly<Record<string, PoolPolicy.Demand>>,
  waiting: ReadonlyArray<PoolPolicy.Waiting> = [],
  memoryAvailableBytes?: number
): PoolPolicy.PoolFacts => ({
  nowMillis: now,
  memoryAvailableBytes,
  demand: new Map(Object.entries(demand)),
  waiting
})

const used = (bytes: number) => ({ bytes, atMillis: now })

const waits = (id: string, key: string, secondsAgo: number): PoolPolicy.Waiting => ({
  id,
  key,
  sinceMillis: now - secondsAgo * 1000
})

describe("PoolPolicy", () => {
  it("keeps as many as arrived at most while one sandbox becomes ready", () => {
    const wanted = (demand: PoolPolicy.Demand) => PoolPolicy.wanted(demand, now, defaults)
    assert.strictEqual(wanted(noDemand), 0)
    assert.strictEqual(wanted(demandOf([3])), 1)
    assert.strictEqual(wanted(demandOf([300, 200, 100])), 1, "one at a time")
    assert.strictEqual(wanted(demandOf([300, 299.5, 299.2, 10])), 3, "a burst, within a second")
    assert.strictEqual(wanted(demandOf([9, 7, 5, 3], { refillMillis: 4000 })), 3, "as long as a refill takes")
    assert.strictEqual(wanted(demandOf([601])), 0, "too long ago")
    assert.strictEqual(wanted(demandOf([], { kept: 2 })), 2, "whatever the demand")
  })

  it("forgets arrivals that are too old, and remembers a bounded number", () => {
    let demand: PoolPolicy.Demand = demandOf([700, 500])
    demand = PoolPolicy.arrived(demand, now, defaults)
    assert.deepStrictEqual(demand.arrivals, [now - 500_000, now])
    for (let count = 0; count < 2000; count++) demand = PoolPolicy.arrived(demand, now, defaults)
    assert.strictEqual(demand.arrivals.length, 1000)
  })

  it("starts one at a time, for the shape that was asked for last", () => {
    const demand = { old: demandOf([50]), last: demandOf([2]) }
    assert.deepStrictEqual(PoolPolicy.next(factsOf(demand), defaults), { drop: [], starts: ["last", "old"] })
    assert.deepStrictEqual(PoolPolicy.next(factsOf(demand, [waits("a", "last", 1)]), defaults).starts, [
      "old"
    ])
    const full = [waits("a", "last", 1), waits("b", "old", 1)]
    assert.deepStrictEqual(PoolPolicy.next(factsOf(demand, full), defaults), { drop: [], starts: [] })
  })

  it("starts other shapes while one cannot be started, and keeps what that one has", () => {
    const broken = PoolPolicy.failed(demandOf([2, 2, 2]), now)
    const demand = { broken, kept: demandOf([], { kept: 2 }), other: demandOf([50]) }
    const limits = { ...defaults, sandboxesMax: 4 }
    const has = [waits("a", "broken", 1)]
    assert.deepStrictEqual(PoolPolicy.next(factsOf(demand, has), limits), {
      drop: [],
      starts: ["other", "kept"]
    })
    assert.deepStrictEqual(
      PoolPolicy.shares(factsOf(demand, has), limits),
      new Map([
        ["broken", 1],
        ["other", 1],
        ["kept", 2]
      ])
    )
    const later = { ...factsOf(demand, has), nowMillis: broken.pausedUntilMillis }
    assert.strictEqual(PoolPolicy.next(later, limits).starts[0], "broken")
    const pauses = [1, 2, 3, 4, 5, 6, 7].map((failures) => {
      const before = { ...noDemand, failures: failures - 1 }
      return (PoolPolicy.failed(before, now).pausedUntilMillis - now) / 1000
    })
    assert.deepStrictEqual(pauses, [2, 4, 8, 16, 32, 60, 60])
    assert.strictEqual(PoolPolicy.started(broken, 5).pausedUntilMillis, 0)
  })

  it("removes those that are too old, too many, or of no demand, and keeps the youngest", () => {
    const { drop, starts } = PoolPolicy.next(
      factsOf({ one: demandOf([1]) }, [
        waits("older", "one", 20),
        waits("younger", "one", 10),
        waits("aged", "one", 1800),
        waits("unknown", "other", 1)
      ]),
      defaults
    )
    assert.deepStrictEqual(drop, [
      { id: "unknown", reason: "demand" },
      { id: "older", reason: "demand" },
      { id: "aged", reason: "age" }
    ])
    assert.deepStrictEqual(starts, [])
  })

  it("removes one after the other while the host is low on memory, also those to keep, and starts none near it", () => {
    const demand = { one: demandOf([1], { kept: 3 }) }
    const { memoryAvailableBytesMin } = defaults
    const waiting = [waits("a", "one", 1), waits("b", "one", 9)]
    const step = (available: number) => PoolPolicy.next(factsOf(demand, waiting, available), defaults)
    assert.deepStrictEqual(step(memoryAvailableBytesMin - 1), {
      drop: [{ id: "b", reason: "memory" }],
      starts: []
    })
    const near = memoryAvailableBytesMin + PoolPolicy.startBytesMore
    assert.deepStrictEqual(step(near - 1), { drop: [], starts: [] })
    assert.deepStrictEqual(step(near), { drop: [], starts: ["one"] })
  })

  it("loses few sandboxes while the host is low on memory: the smallest that frees enough, or else the largest", () => {
    const loads = (bytes: number) => demandOf([1], { loads: true, measured: [used(bytes)] })
    const demand = { small: demandOf([1], { kept: 2 }), middle: loads(2 ** 27), large: loads(2 ** 29) }
    const waiting = [
      waits("small-1", "small", 9),
      waits("small-2", "small", 1),
      waits("middle", "middle", 5),
      waits("large", "large", 3)
    ]
    const lost = (missingBytes: number) =>
      PoolPolicy.next(factsOf(demand, waiting, defaults.memoryAvailableBytesMin - missingBytes), defaults)
        .drop
    for (const [missingBytes, id] of [
      [1, "small-1"],
      [sandboxBytes, "small-1"],
      [sandboxBytes + 1, "middle"],
      [2 ** 27 + 1, "large"],
      [2 ** 30, "large"]
    ] as const)
      assert.deepStrictEqual(lost(missingBytes), [{ id, reason: "memory" }])
  })

  it("starts and removes none in turn, whatever memory there is", () => {
    const demand = { one: demandOf([], { kept: 8 }) }
    for (let spare = -2 * sandboxBytes; spare < 20 * sandboxBytes; spare += 2 ** 20) {
      const waiting: Array<PoolPolicy.Waiting> = []
      let steps = 0
      for (; steps < 20; steps++) {
        // Each sandbox takes twice what it is counted as.
        const available = defaults.memoryAvailableBytesMin + spare - waiting.length * 2 * sandboxBytes
        const { drop, starts } = PoolPolicy.next(factsOf(demand, waiting, available), defaults)
        assert.deepStrictEqual(drop, [], String(spare))
        const [start] = starts
        if (start === undefined) break
        waiting.push(waits(`started-${steps}`, start, 0))
      }
      assert.isBelow(steps, 9)
    }
  })

  it("stays within the memory of the pool", () => {
    const limits = { ...defaults, sandboxesMax: 100, memoryBytesMax: 2.5 * sandboxBytes }
    assert.deepStrictEqual(
      PoolPolicy.shares(factsOf({ a: demandOf([], { kept: 5 }), b: demandOf([1]) }), limits),
      new Map([
        ["b", 0],
        ["a", 2]
      ]),
      "first those to keep"
    )
  })

  it("counts a sandbox that loads code as the most that one of its shape used, and starts it with memory for it", () => {
    const loads = demandOf([1, 1, 1, 1], { loads: true })
    const limits = { ...defaults, memoryBytesMax: 2 ** 30 }
    const placesOf = (demand: PoolPolicy.Demand) =>
      PoolPolicy.shares(factsOf({ one: demand }), limits).get("one")
    assert.strictEqual(placesOf(loads), 2, "before one was measured")
    const measured = PoolPolicy.started(loads, 5, used(2 ** 28))
    assert.strictEqual(placesOf(measured), 4)
    assert.strictEqual(placesOf(PoolPolicy.started(measured, 5, used(2 ** 29 + 1))), 1)
    assert.strictEqual(placesOf(PoolPolicy.started(measured, 5, used(2 ** 20))), 4, "not less than before")
    assert.strictEqual(placesOf(PoolPolicy.started(loads, 5, used(2 ** 31))), 0)
    let later = PoolPolicy.started(loads, 5, used(2 ** 31))
    for (let count = 0; count < 8; count++) later = PoolPolicy.started(later, 5, used(2 ** 28))
    assert.strictEqual(placesOf(later), 4, "the last eight")
    const old = PoolPolicy.started(loads, 5, { bytes: 2 ** 31, atMillis: now - 600_001 })
    assert.strictEqual(placesOf(PoolPolicy.arrived(old, now, defaults)), 2, "measured again after a time")
    const step = (spareBytes: number) =>
      PoolPolicy.next(
        factsOf(
          { loads: measured, plain: demandOf([9]) },
          [],
          defaults.memoryAvailableBytesMin + PoolPolicy.startBytesMore + spareBytes
        ),
        { ...limits, memoryBytesMax: 2 ** 31 }
      ).starts[0]
    assert.strictEqual(step(2 ** 28 - sandboxBytes), "loads")
    assert.strictEqual(step(2 ** 28 - sandboxBytes - 1), "plain")
  })

  it("pauses a shape whose failed starts take long, so that others have most of the time", () => {
    const slow = PoolPolicy.failed(demandOf([1], { loads: true }), now, 30_000)
    assert.strictEqual(slow.pausedUntilMillis, now + 150_000)
  })

  it("forgets failures of a shape that loads code only when it has served a run", () => {
    const failing = PoolPolicy.failed(PoolPolicy.failed(demandOf([1], { loads: true }), now), now)
    const started = PoolPolicy.started(failing, 5, used(2 ** 28))
    assert.deepStrictEqual([started.failures, started.pausedUntilMillis], [2, 0])
    assert.strictEqual(PoolPolicy.served(started).failures, 0)
  })

  it("leaves the memory of a load that comes first to it while it waits", () => {
    const MiB = 2 ** 20
    const load = demandOf([2], { loads: true, measured: [used(128 * MiB)] })
    const demand = {
      first: demandOf([1]),
      load,
      plain: demandOf([3]),
      other: demandOf([4], { loads: true })
    }
    const meanwhile = (spareBytes: number, all: Record<string, PoolPolicy.Demand> = demand) => {
      const facts = factsOf(all, [], defaults.memoryAvailableBytesMin + spareBytes)
      return PoolPolicy.startsMeanwhile(PoolPolicy.next(facts, defaults), facts, defaults)
    }
    assert.deepStrictEqual(meanwhile(1024 * MiB), ["first", "plain"])
    assert.deepStrictEqual(meanwhile(240 * MiB), ["first", "plain"], "176 for the load, and 64 for the other")
    assert.deepStrictEqual(meanwhile(239 * MiB), ["first"])
    assert.deepStrictEqual(meanwhile(175 * MiB), ["first", "plain"], "the load cannot be started in any case")
    const { first, plain } = demand
    assert.deepStrictEqual(meanwhile(64 * MiB, { first, plain }), ["first", "plain"], "no load")
  })

  it("keeps a loaded sandbox for ten seconds after its own run, and says what another shape lacks", () => {
    const loads = { loads: true, measured: [used(2 ** 29)] }
    const limits = { ...defaults, memoryBytesMax: 2 ** 29 }
    const factsAt = (secondsAgo: number) =>
      factsOf({ one: demandOf([secondsAgo], loads), two: demandOf([1], loads) }, [waits("a", "one", 9)])
    assert.deepStrictEqual(PoolPolicy.next(factsAt(9), limits), { drop: [], starts: [] })
    assert.deepStrictEqual(PoolPolicy.limitedBy(factsAt(9), limits), new Map([["two", "memoryBytesMax"]]))
    const later = PoolPolicy.next(factsAt(10), limits)
    assert.deepStrictEqual(later, { drop: [{ id: "a", reason: "memory" }], starts: ["two"] })
    const roomy = { ...limits, memoryBytesMax: 2 ** 30 }
    assert.deepStrictEqual(PoolPolicy.next(factsAt(10), roomy), { drop: [], starts: ["two"] })
    assert.deepStrictEqual(PoolPolicy.limitedBy(factsAt(10), roomy), new Map())
  })

  it("says which limit keeps sandboxes from waiting", () => {
    const one = demandOf([1, 1, 1])
    const limitOf = (limits: Partial<PoolPolicy.PoolLimits>, demand = one, available?: number) =>
      PoolPolicy.limitedBy(factsOf({ one: demand }, [], available), { ...defaults, ...limits }).get("one")
    assert.isUndefined(limitOf({}))
    assert.strictEqual(limitOf({ sandboxesMax: 2 }), "sandboxesMax")
    assert.strictEqual(limitOf({ memoryBytesMax: 2 * sandboxBytes }), "memoryBytesMax")
    assert.strictEqual(limitOf({ sandboxesMax: 1, memoryBytesMax: sandboxBytes }), "sandboxesMax")
    assert.strictEqual(limitOf({}, one, defaults.memoryAvailableBytesMin), "memoryAvailableBytesMin")
    assert.isUndefined(limitOf({}, PoolPolicy.failed(one, now)), "it is paused, for another reason")
  })

  it.prop(
    "finds the same peak as a count of every window",
    [Schema.Array(between(0, 60)), between(0, 20)],
    ([arrivals, window]) => {
      const sorted = arrivals.toSorted((a, b) => a - b)
      const counted = sorted.map((from) => sorted.filter((at) => at >= from && at <= from + window).length)
      assert.strictEqual(PoolPolicy.peakWithin(sorted, window), Math.max(0, ...counted))
    }
  )

  const Pool = Schema.Struct({
    demand: Schema.Array(
      Schema.Struct({
        secondsAgo: Schema.Array(between(0, 700)),
        kept: between(0, 3),
        loads: Schema.Boolean,
        measured: Schema.Array(
          Schema.Struct({
            bytes: Schema.Literals([1, sandboxBytes, 3 * sandboxBytes]),
            atMillis: Schema.Literal(now)
          })
        ).check(Schema.isMaxLength(3)),
        refillMillis: between(0, 9000)
      })
    ).check(Schema.isMaxLength(5)),
    waiting: Schema.Array(Schema.Struct({ key: between(0, 6), secondsAgo: between(0, 2000) })),
    sandboxesMax: between(0, 12),
    memorySandboxes: between(0, 12),
    isLow: Schema.Boolean
  })

  /** Steps until nothing is left to do. */
  const settledOf = (pool: typeof Pool.Type) => {
    const limits = {
      ...defaults,
      sandboxesMax: pool.sandboxesMax,
      memoryBytesMax: pool.memorySandboxes * sandboxBytes
    }
    const demand = Object.fromEntries(
      pool.demand.map(({ secondsAgo, ...more }, index) => [String(index), demandOf(secondsAgo, more)])
    )
    const available = pool.isLow ? limits.memoryAvailableBytesMin - 1 : undefined
    let waiting = pool.waiting.map(({ key, secondsAgo }, index) =>
      waits(`waiting-${index}`, String(key), secondsAgo)
    )
    for (let step = 0; ; step++) {
      assert.isBelow(step, 30, "it never settles")
      const { drop, starts } = PoolPolicy.next(factsOf(demand, waiting, available), limits)
      const [start] = starts
      const gone = new Set(drop.map(({ id }) => id))
      waiting = waiting.filter(({ id }) => !gone.has(id))
      if (start !== undefined) waiting.push(waits(`started-${step}`, start, 0))
      assert.isAtMost(waiting.length, pool.sandboxesMax)
      const bytes = waiting.reduce((sum, { key }) => sum + PoolPolicy.bytesOf(demand[key]!), 0)
      assert.isAtMost(bytes, limits.memoryBytesMax)
      if (drop.length === 0 && start === undefined) return { available, demand, limits, waiting }
    }
  }

  it.prop("settles within its limits from any state, and then does nothing more", [Pool], ([pool]) => {
    const { available, demand, limits, waiting } = settledOf(pool)
    if (pool.isLow) return assert.deepStrictEqual(waiting, [])
    for (const [key, share] of PoolPolicy.shares(factsOf(demand, waiting, available), limits))
      assert.strictEqual(waiting.filter((one) => one.key === key).length, share)
  })

  it.prop(
    "keeps a loaded sandbox when another shape is asked for within ten seconds after its own run",
    [Pool, Schema.Array(between(0, 20)).check(Schema.isMinLength(5)), between(0, 4), between(1, 20)],
    ([pool, secondsAgo, key, seconds]) => {
      // Those to keep come first in any case.
      const loading = pool.demand.map((one, index) => ({
        ...one,
        kept: 0,
        loads: true,
        secondsAgo: [secondsAgo[index]!]
      }))
      const { demand, limits, waiting } = settledOf({ ...pool, demand: loading, isLow: false })
      const asked = demand[key]
      if (asked === undefined) return
      const nowMillis = now + seconds * 1000
      const after = { ...demand, [key]: PoolPolicy.arrived(asked, nowMillis, limits) }
      const { drop } = PoolPolicy.next({ ...factsOf(after, waiting), nowMillis }, limits)
      for (const { id, reason } of drop) {
        const other = waiting.find((one) => one.id === id)!.key
        const last = demand[other]!.arrivals.at(-1) ?? 0
        if (reason === "memory") assert.isAtLeast(nowMillis - last, 10_000)
      }
    },
    { arbitrary: { runs: 500 } }
  )
})
