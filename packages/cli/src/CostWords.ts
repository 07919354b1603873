/** Words for the cost of a call and of a run. Pure. */
import * as Money from "@cogni/sandbox-ledger/Money"
import type { RunCost } from "@cogni/sandbox-ledger/RunCost"
import { plural } from "./Quantity.ts"

/** Formats an amount exactly. An unknown one is never 0. */
export const usd = (amount: number | undefined): string =>
  amount === undefined ? "unknown" : `$${Money.format(Money.fromUsd(amount))}`

/** Describes the cost of a run in one phrase, such as `$0.0125 (1 call of unknown cost)`. */
export const costOf = (cost: RunCost): string => {
  const doubt = [
    ...(cost.callsWithoutCost === 0 ? [] : [`${plural(cost.callsWithoutCost, "call")} of unknown cost`]),
    ...(cost.estimatedCostUsd === undefined ? [] : [`${usd(cost.estimatedCostUsd)} estimated`]),
    ...(cost.isSettled ? [] : ["not settled yet"])
  ]
  return `${usd(cost.costUsd)}${doubt.length === 0 ? "" : ` (${doubt.join(", ")})`}`
}
