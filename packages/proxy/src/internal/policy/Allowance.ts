/** A token bucket: an amount per second, some of which may be used at once. Pure, without a clock of its own. */

export interface Allowance {
  /** Take this much if it is there. */
  readonly take: (nowMillis: number, amount?: number) => boolean
  /** Take this much in any case; what is missing is a debt that has to be refilled first. */
  readonly charge: (nowMillis: number, amount: number) => void
  /** How long until this much can be taken; left out, until there is no debt. */
  readonly waitMillis: (nowMillis: number, amount?: number) => number
}

export const make = (perSecond: number, burst = perSecond): Allowance => {
  let left = burst
  let filledMillis: number | undefined
  const fill = (nowMillis: number) => {
    const passedMillis = Math.max(0, nowMillis - (filledMillis ?? nowMillis))
    left = Math.min(burst, left + (passedMillis * perSecond) / 1000)
    filledMillis = Math.max(filledMillis ?? nowMillis, nowMillis)
  }
  return {
    take: (nowMillis, amount = 1) => {
      fill(nowMillis)
      if (left < amount) return false
      left -= amount
      return true
    },
    charge: (nowMillis, amount) => {
      fill(nowMillis)
      left -= amount
    },
    waitMillis: (nowMillis, amount = 0) => {
      fill(nowMillis)
      return left >= amount ? 0 : ((amount - left) / perSecond) * 1000
    }
  }
}
