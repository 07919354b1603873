/** The standing of an account: each call counts in one day and in one month, whatever the time at which one asks. */
import { assert, describe, it } from "@effect/vitest"
import { Money } from "@cogni/sandbox-ledger"
import { Schema } from "effect"
import * as AccountStanding from "../src/AccountStanding.ts"
import { entryOf } from "../src/testing/LedgerSamples.ts"

const dayMillis = 86_400_000

/** A moment at most 2 ms from midnight, or any other, in the years of the schema of times. */
const Moment = Schema.Struct({
  day: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2_900_000 })),
  millis: Schema.Union([
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 })),
    Schema.Int.check(Schema.isBetween({ minimum: dayMillis - 2, maximum: dayMillis - 1 })),
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: dayMillis - 1 }))
  ])
})

/** Days around the call at which one asks. */
const around = Array.from({ length: 70 }, (_, index) => index - 35)

describe("AccountStanding", () => {
  it.prop(
    "counts a call in exactly one day and one month of those before and after it",
    { moment: Moment },
    ({ moment: { day, millis } }) => {
      // From 1970-02-10, so that no day around it is before the first.
      const at = (day + 40) * dayMillis + millis
      const entry = entryOf("run-00000001", "call", { at: new Date(at).toISOString(), costUsd: 1 })
      const spent = around.map((days) => {
        const now = new Date(at + days * dayMillis).toISOString()
        const { day: ofDay, month } = AccountStanding.of([], [entry], now)
        return [now, Money.toUsd(ofDay.spent), Money.toUsd(month.spent)] as const
      })
      for (const [now, ofDay, ofMonth] of spent) {
        assert.strictEqual(ofDay, now.slice(0, 10) === entry.at.slice(0, 10) ? 1 : 0, now)
        assert.strictEqual(ofMonth, now.slice(0, 7) === entry.at.slice(0, 7) ? 1 : 0, now)
      }
    },
    { arbitrary: { runs: 300, seed: "periods-1" } }
  )

  it.prop(
    "has periods that contain their moment, and that follow each other without a gap",
    { moment: Moment },
    ({ moment: { day, millis } }) => {
      const now = new Date((day + 40) * dayMillis + millis).toISOString()
      for (const period of ["day", "month"] as const) {
        const { from, to } = AccountStanding.periodsOf(now)[period]
        assert.isTrue(from <= now && now < to, `${from} <= ${now} < ${to}`)
        assert.strictEqual(AccountStanding.periodsOf(to)[period].from, to)
      }
    },
    { arbitrary: { runs: 300, seed: "periods-2" } }
  )
})
