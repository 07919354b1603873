/** Limits of accounts: which apply, which models are free, and what they decide. */
import { assert, describe, it } from "@effect/vitest"
import { AccountLimits, Money } from "@cogni/sandbox-ledger"
import * as AccountDecision from "@cogni/sandbox-ledger/AccountDecision"
import { Schema } from "effect"
import { type AccountStanding, periodsOf } from "../src/AccountStanding.ts"

const standing = (spent: number, reserved: number, runs = 0): AccountStanding => {
  const period = { spent: Money.fromUsd(spent), reserved: Money.fromUsd(reserved) }
  return { runs, processes: 1, day: period, month: period }
}

describe("AccountLimits", () => {
  it("replace the default as a whole for a listed account, whatever its name", () => {
    const limits = {
      default: { dayUsdMax: 1, concurrentRunsMax: 2 },
      accounts: { paid: { monthUsdMax: 100 } }
    }
    assert.deepStrictEqual(AccountLimits.limitOf(limits, "paid"), { monthUsdMax: 100 })
    assert.deepStrictEqual(AccountLimits.limitOf(limits, "toString"), limits.default)
    assert.deepStrictEqual(AccountLimits.limitOf({}, "paid"), {})
  })

  it.each([
    ["*:free", "m:free", true],
    ["*:free", "m:free2", false],
    ["*:free", "m", false],
    ["m", "m", true],
    ["m", "m1", false],
    ["a*a", "a", false],
    ["a*a", "aa", true],
    ["a*b*c", "a1b2c", true],
    ["a*b*c", "ac", false],
    ["a*bc*c", "abc", false],
    ["*", "", true]
  ])("the free models %s and the model %s: %s", (pattern, model, isFree) => {
    assert.strictEqual(AccountLimits.isFreeModel({ freeModels: ["other", pattern] }, model), isFree)
  })

  it("no model is free by default", () => {
    assert.isFalse(AccountLimits.isFreeModel({}, "m"))
  })

  it("forbid what would exceed them, with the first limit that does", () => {
    const decide = (limit: AccountLimits.AccountLimit, so: AccountStanding, usd: number | undefined) =>
      AccountDecision.decide(limit, so, usd === undefined ? undefined : Money.fromUsd(usd))?.limit
    const all = { concurrentRunsMax: 2, dayUsdMax: 1, monthUsdMax: 1 }
    assert.isUndefined(decide({}, standing(1e6, 1e6, 1e6), 1))
    assert.strictEqual(decide(all, standing(9, 9, 2), undefined), "runs")
    assert.isUndefined(decide(all, standing(9, 9, 1), undefined), "free models need no credit")
    assert.isUndefined(decide(all, standing(0.4, 0.5), 0.1))
    assert.strictEqual(decide(all, standing(0.4, 0.5), 0.1 + 1e-12), "day")
    assert.strictEqual(decide({ monthUsdMax: 1 }, standing(0.4, 0.5), 0.2), "month")
    assert.strictEqual(decide({ dayUsdMax: 0 }, standing(0, 0), 1e-6), "day")
    assert.strictEqual(decide({ ...all, dayUsdMax: 5 }, standing(4, 0, 2), 2), "month", "never, so not later")
    assert.strictEqual(decide(all, standing(0, 0, 2), 1.5), "day", "never, so not when a run ends")
  })

  it.each([
    ["2026-02-28T23:59:59.999Z", "2026-02-28", "2026-03-01", "2026-02-01", "2026-03-01"],
    ["2024-02-28T00:00:00.000Z", "2024-02-28", "2024-02-29", "2024-02-01", "2024-03-01"],
    ["2026-12-31T12:00:00.000Z", "2026-12-31", "2027-01-01", "2026-12-01", "2027-01-01"]
  ])("the periods of %s are those of UTC", (now, dayFrom, dayTo, monthFrom, monthTo) => {
    const at = (date: string) => `${date}T00:00:00.000Z`
    assert.deepStrictEqual(periodsOf(now), {
      day: { from: at(dayFrom), to: at(dayTo) },
      month: { from: at(monthFrom), to: at(monthTo) }
    })
  })

  it.each([
    [{ accounts: { a: { dayUsdMax: -1 } } }],
    [{ default: { concurrentRunsMax: 1.5 } }],
    [{ default: { callsPerMinuteMax: 0 } }],
    [{ estimateUsd: 0 }],
    [{ default: { dayUsdMax: Number.NaN } }]
  ])("a file with %j is refused", (file) => {
    assert.isFalse(Schema.is(AccountLimits.AccountLimits)(file))
  })
})
