/** The limits of accounts, from a JSON file that `COGNI_ACCOUNT_LIMITS_FILE` names. */
import * as HostFile from "@cogni/sandbox-host-files/HostFile"
import type { AccountAdmissionOptions } from "@cogni/sandbox-ledger/AccountAdmission"
import * as AccountLimits from "@cogni/sandbox-ledger/AccountLimits"
import type { Prices } from "@cogni/sandbox-proxy/Prices"
import { Effect, Schema } from "effect"
import { type Refusal, refusal } from "./Failure.ts"

/** About 10,000 accounts with all their limits. */
const fileBytesMax = 2 * 1024 * 1024

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(AccountLimits.AccountLimits), {
  onExcessProperty: "error"
})

/** Reads the limits; `undefined` without a file. */
export const make = Effect.fnUntraced(function* (
  file: string | undefined
): Effect.fn.Return<AccountLimits.AccountLimits | undefined, Refusal> {
  if (file === undefined) return undefined
  const refuse = (problem: string, remedy: string) =>
    refusal("configuration", `COGNI_ACCOUNT_LIMITS_FILE ${file} ${problem}`, remedy)
  const { bytes } = yield* HostFile.read(file, { bytesMax: fileBytesMax }).pipe(
    Effect.mapError(({ detail, remedy }) => refuse(`cannot be read (it ${detail})`, remedy))
  )
  return yield* decode(new TextDecoder().decode(bytes)).pipe(
    Effect.mapError(({ message }) =>
      refuse(
        `does not describe limits: ${message}`,
        "Correct it: docs/guides/account-limits.md lists the keys"
      )
    )
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
