/** The limits of accounts, from a JSON file that `COGNI_ACCOUNT_LIMITS_FILE` names. */
import type { AccountAdmissionOptions } from "@cogni/sandbox-ledger/AccountAdmission"
import * as AccountLimits from "@cogni/sandbox-ledger/AccountLimits"
import type { Prices } from "@cogni/sandbox-proxy/Prices"
import { Effect } from "effect"
import type { Refusal } from "./Failure.ts"
import * as JsonFile from "./JsonFile.ts"

/** About 10,000 accounts with all their limits. */
const fileBytesMax = 2 * 1024 * 1024

/** Reads the limits; `undefined` without a file. */
export const make = Effect.fnUntraced(function* (
  file: string | undefined
): Effect.fn.Return<AccountLimits.AccountLimits | undefined, Refusal> {
  if (file === undefined) return undefined
  return yield* JsonFile.read(
    {
      variable: "COGNI_ACCOUNT_LIMITS_FILE",
      file,
      bytesMax: fileBytesMax,
      describes: "limits",
      page: "docs/guides/account-limits.md"
    },
    AccountLimits.AccountLimits
  )
})

/** Returns how runs are admitted. A model whose every price is 0 needs no credit. */
export const admission = (
  limits: AccountLimits.AccountLimits,
  prices: Prices | undefined
): Omit<AccountAdmissionOptions, "owner"> => ({
  limitOf: (account) => Effect.succeed(AccountLimits.limitOf(limits, account)),
  estimateUsd: limits.estimateUsd,
  isFree: isFree(limits, prices)
})

/** Returns the function that says whether a model is free: it is listed as free, or its every price is 0. */
export const isFree =
  (limits: AccountLimits.AccountLimits | undefined, prices: Prices | undefined) =>
  (model: string): boolean =>
    AccountLimits.isFreeModel(limits ?? {}, model) || costsNothing(prices, model)

const costsNothing = (prices: Prices | undefined, model: string): boolean =>
  prices !== undefined &&
  Object.hasOwn(prices, model) &&
  Object.values(prices[model]!).every((price) => price === 0)
