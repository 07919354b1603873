/**
 * The decision whether an account may spend what a run asks for. Pure.
 */
import type { AccountStanding } from "./AccountStanding.ts"
import * as Money from "./Money.ts"
import type { AccountLimit } from "./AccountLimits.ts"

/** Reservation for a run without a cost budget, in US dollars, if nothing else is configured. */
export const estimateUsdDefault = 1

/** Whether a limit is one of money. */
export const limitsMoney = ({ dayUsdMax, monthUsdMax }: AccountLimit): boolean =>
  dayUsdMax !== undefined || monthUsdMax !== undefined

/** A limit of money that a run would break, with the figures behind it. */
export interface MoneyRefusal {
  readonly limit: "day" | "month"
  readonly usdMax: number
  readonly spent: Money.Pico
  /** Reserved by other runs. */
  readonly reserved: Money.Pico
  /** Amount that this run would reserve. */
  readonly asked: Money.Pico
}

/** The limit that a run would break, with the figures behind it. */
export type AccountRefusal =
  | { readonly limit: "runs"; readonly concurrentRunsMax: number; readonly runs: number }
  | MoneyRefusal

/** Whether a run may spend more than the whole limit: no wait would ever allow it. */
export const exceedsWhole = ({ asked, usdMax }: Pick<MoneyRefusal, "asked" | "usdMax">): boolean =>
  asked > Money.fromUsd(usdMax)

/**
 * Decides whether an account may start a run that reserves an amount. Without an amount, as for free models, credit
 * does not matter. A limit that the run exceeds alone comes first, because waiting for any other does not help.
 */
export const decide = (
  { concurrentRunsMax, dayUsdMax, monthUsdMax }: AccountLimit,
  { day, month, runs }: AccountStanding,
  asked: Money.Pico | undefined
): AccountRefusal | undefined => {
  const ofMoney = (["day", "month"] as const).flatMap((limit): ReadonlyArray<MoneyRefusal> => {
    const usdMax = { day: dayUsdMax, month: monthUsdMax }[limit]
    const { reserved, spent } = { day, month }[limit]
    return usdMax !== undefined && asked !== undefined && spent + reserved + asked > Money.fromUsd(usdMax)
      ? [{ limit, usdMax, spent, reserved, asked }]
      : []
  })
  const never = ofMoney.find(exceedsWhole)
  if (never !== undefined) return never
  return concurrentRunsMax !== undefined && runs >= concurrentRunsMax
    ? { limit: "runs", concurrentRunsMax, runs }
    : ofMoney[0]
}
