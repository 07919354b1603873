/** No schedule of starts, ends, crashes, outages and late costs exceeds the limits of an account. */
import { assert, describe, it } from "@effect/vitest"
import { AccountReservations, Ledger } from "@cogni/sandbox-ledger"
import { Effect } from "effect"
import * as AccountSchedules from "./AccountSchedules.ts"

describe("AccountReservations", () => {
  const seen = { calls: 0, dead: 0, refusals: 0, runs: 0 }

  it.effect.prop(
    "keep the limits of an account in any schedule, and end with the runs",
    { seeds: AccountSchedules.Seeds },
    ({ seeds }) =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.makeMemory()
        const reservations = yield* Effect.provideService(
          AccountReservations.makeMemory,
          Ledger.Ledger,
          ledger
        )
        const { lives, refusals } = yield* AccountSchedules.play(ledger, reservations, seeds)
        seen.refusals += refusals
        seen.runs += lives.length
        seen.calls += lives.reduce((sum, { calls }) => sum + calls.length, 0)
        seen.dead += lives.filter(({ hasEnded }) => !hasEnded).length
      }),
    { arbitrary: { runs: 500, seed: "accounts-1" } }
  )

  it("were refused, used and lost often enough for the schedules to mean something", () => {
    assert.isAbove(seen.refusals, 100)
    assert.isAbove(seen.calls, 500)
    assert.isAbove(seen.dead, 250)
  })
})
