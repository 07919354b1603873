/**
 * Amounts of US dollars, counted in pico-dollars (10⁻¹² USD), so that sums are exact.
 *
 * One pico-dollar is the price of one token at 0.000001 USD per million tokens. So the cost of a call is a whole number
 * of them, for any price list with at most six decimals. A `number` of dollars is only used at the edge: it is read as
 * the shortest decimal that it stands for, so that 0.1 + 0.2 is three tenths here.
 */
import * as Schema from "effect/Schema"

/** A whole number of pico-dollars, which no other integer can be mistaken for. */
export const Pico = Schema.BigInt.pipe(Schema.brand("@cogni/sandbox-ledger/Pico"))

export type Pico = typeof Pico.Type

/** Decimals of a dollar that are counted. */
const decimals = 12

const scale = 10n ** BigInt(decimals)

/** Returns the pico-dollars of a finite number of dollars that is not negative. Half a pico-dollar is rounded up. */
export const fromUsd = (usd: number): Pico => {
  if (!Number.isFinite(usd) || usd < 0)
    throw new RangeError(`an amount must be 0 or more dollars, not ${usd}`)
  const [mantissa = "0", exponent = "0"] = String(usd).split("e")
  const [whole = "0", fraction = ""] = mantissa.split(".")
  const digits = BigInt(whole + fraction)
  const shift = decimals + Number(exponent) - fraction.length
  if (shift >= 0) return Pico.make(digits * 10n ** BigInt(shift))
  const divisor = 10n ** BigInt(-shift)
  return Pico.make((digits + divisor / 2n) / divisor)
}

/** Returns the number of dollars nearest to an amount. */
export const toUsd = (pico: Pico): number => Number(format(pico))

/** Formats an amount exactly, in dollars, without an exponent: `0.000003075`. */
export const format = (pico: Pico): string => {
  const sign = pico < 0n ? "-" : ""
  const size = pico < 0n ? -pico : pico
  const fraction = String(size % scale)
    .padStart(decimals, "0")
    .replace(/0+$/u, "")
  return `${sign}${size / scale}${fraction === "" ? "" : `.${fraction}`}`
}
