/**
 * Sums of money, and the largest cost of one call.
 */
import { Pico, fromUsd, toUsd } from "./Money.ts"

/** Maximum cost of one call, in US dollars, as the gateway accepts it. In pico-dollars it fits into 64 bits. */
export const callUsdMax = 1_000_000

/** Rounds a number of dollars to the nearest pico-dollar. */
export const rounded = (usd: number): number => toUsd(fromUsd(usd))

export const zero = Pico.make(0n)

export const add = (a: Pico, b: Pico): Pico => Pico.make(a + b)
