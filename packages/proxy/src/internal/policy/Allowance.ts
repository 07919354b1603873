/** Token bucket: a rate per second with a burst. Pure, without a clock. */

export interface Allowance {
  /** Takes this amount if it is available. Returns whether it was. */
  readonly take: (nowMillis: number, amount?: number) => boolean
  /** Takes this amount in any case. A shortage is a debt that must be refilled first. */
  readonly charge: (nowMillis: number, amount: number) => void
  /** Returns the time until this amount can be taken; without an amount, until there is no debt. */
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
