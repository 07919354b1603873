/** Calls of an account in a minute, counted by any number of threads. */
import { assert, describe, it } from "@effect/vitest"
import * as CallPace from "@cogni/sandbox-core/CallPace"
import { Schema } from "effect"

const minute = 60_000

describe("CallPace", () => {
  it("allows a number of calls in a minute of the clock, and says how far the next one is away", () => {
    const pace = CallPace.make(2)
    const at = 10 * minute + 45_000
    assert.deepStrictEqual([at, at + 1, at + 2, at + 14_999].map(pace.take), [0, 0, 14_998, 1])
    assert.deepStrictEqual([11 * minute, 11 * minute, 11 * minute].map(pace.take), [0, 0, minute])
  })

  it("does not count a minute twice if the clock goes back", () => {
    const pace = CallPace.make(1)
    assert.strictEqual(pace.take(5 * minute), 0)
    assert.strictEqual(pace.take(4 * minute), minute, "waits at most a minute")
    assert.isAbove(pace.take(5 * minute + 1), 0)
    assert.strictEqual(pace.take(6 * minute), 0)
  })

  it("goes on in the present if the clock was far ahead once", () => {
    const pace = CallPace.make(1)
    assert.strictEqual(pace.take(24 * 60 * minute), 0)
    assert.strictEqual(pace.take(5 * minute), 0)
    assert.isAbove(pace.take(5 * minute + 1), 0)
    assert.strictEqual(pace.take(6 * minute), 0)
  })

  it("counts the calls of all that share its memory, and follows a changed limit", () => {
    const pace = CallPace.make(3)
    const other = CallPace.over(pace.buffer)
    assert.strictEqual(pace.take(0), 0)
    assert.strictEqual(other.take(0), 0)
    other.allow(2.9)
    assert.strictEqual(pace.limit(), 2)
    assert.isAbove(pace.take(0), 0)
    pace.allow(3)
    assert.strictEqual(other.take(0), 0)
    pace.allow(0)
    assert.strictEqual(pace.limit(), 1, "a share is at least one call")
  })

  it.prop(
    "never allows more than the limit in a minute, and waits only while it is used up",
    {
      limit: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 5 })),
      steps: Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 40_000 })))
    },
    ({ limit, steps }) => {
      const pace = CallPace.make(limit)
      const taken = new Map<number, number>()
      let now = 0
      for (const step of steps) {
        now += step
        const count = taken.get(Math.floor(now / minute)) ?? 0
        const wait = pace.take(now)
        assert.strictEqual(wait === 0, count < limit)
        if (wait === 0) taken.set(Math.floor(now / minute), count + 1)
        else assert.strictEqual(pace.take(now + wait), 0)
        if (wait > 0) {
          now += wait
          taken.set(Math.floor(now / minute), 1)
        }
      }
    }
  )
})
