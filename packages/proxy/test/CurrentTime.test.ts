import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as CurrentTime from "../src/tools/CurrentTime.ts"

const call = (input: unknown) =>
  CurrentTime.tool.call(input, {
    runId: RunId.RunId.make("run-4f7k2m9q0x1z"),
    identity: { billingAccountId: "acct", attempt: 0 },
    requestId: "r1"
  })

/** 23:30 UTC, which is the next day in Tokyo. */
const winter = Date.parse("2026-01-15T23:30:00.000Z")
const summer = Date.parse("2026-07-15T23:30:00.000Z")

const localOf = (timezone: string) =>
  Effect.map(call({ timezone }), (result) => (result as { readonly local: string }).local)

describe("CurrentTime", () => {
  it.effect("returns the clock's time, in UTC if no zone is named", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(winter)
      assert.deepInclude(yield* call({}), {
        iso: "2026-01-15T23:30:00.000Z",
        epochMillis: winter,
        timezone: "UTC"
      })
      yield* TestClock.adjust("1 second")
      assert.deepInclude(yield* call({}), { epochMillis: winter + 1000 })
    })
  )

  it.effect("converts to a zone across midnight, in summer time, and with half-hour offsets", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(winter)
      assert.match(yield* localOf("Asia/Tokyo"), /^2026-01-16, 08:30:00/u)
      assert.match(yield* localOf("Europe/Berlin"), /^2026-01-16, 00:30:00/u)
      assert.match(yield* localOf("America/New_York"), /^2026-01-15, 18:30:00/u)
      assert.match(yield* localOf("Asia/Kolkata"), /^2026-01-16, 05:00:00/u)
      yield* TestClock.setTime(summer)
      assert.match(yield* localOf("Europe/Berlin"), /^2026-07-16, 01:30:00/u)
    })
  )

  it.effect("fails with validation and names the zone if it does not exist", () =>
    Effect.gen(function* () {
      for (const timezone of ["Nowhere/Else", "", "../../etc/passwd", "+25:00"]) {
        const error = yield* Effect.flip(call({ timezone }))
        assert.strictEqual(error.code, "validation", timezone)
        assert.include(error.message, JSON.stringify(timezone))
      }
      for (const input of [{ timezone: "x".repeat(65) }, { timezone: 1 }, { zone: "UTC" }])
        assert.strictEqual((yield* Effect.flip(call(input))).code, "validation")
    })
  )
})
