/**
 * Limits of the accounts that pay: what each may spend in a day and in a month, its runs at once, and its calls per
 * minute. Days and months are those of UTC.
 */
import * as Schema from "effect/Schema"
import { callsPerMinuteMax } from "@cogni/sandbox-core/CallPace"
import { LedgerEntry } from "./LedgerEntry.ts"
import * as MoneySums from "./MoneySums.ts"

/** Highest amount of a limit, in US dollars. */
const usdMax = 1e9

const Usd = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: usdMax }))

/** Limits of one account. An absent field is no limit. */
export const AccountLimit = Schema.Struct({
  /** US dollars in a day. 0 allows only free models. */
  dayUsdMax: Schema.optionalKey(Usd),
  /** US dollars in a month. 0 allows only free models. */
  monthUsdMax: Schema.optionalKey(Usd),
  /** Runs with a model at once, of all processes and hosts that use the database. 0 allows none. */
  concurrentRunsMax: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100_000 }))),
  /** Calls to models that are sent in a minute. The processes with runs of the account share it. */
  callsPerMinuteMax: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: callsPerMinuteMax }))
  )
})

export type AccountLimit = typeof AccountLimit.Type

/** Limits of all accounts, as a file has them. */
export const AccountLimits = Schema.Struct({
  /** Reservation for a run without a cost budget, which then is its budget, in US dollars (default 1). */
  estimateUsd: Schema.optionalKey(
    Schema.Finite.check(Schema.isBetween({ minimum: 1e-6, maximum: MoneySums.callUsdMax }))
  ),
  /** Names of models, as the upstream has them, that need no credit. `*` stands for any characters. */
  freeModels: Schema.optionalKey(
    Schema.Array(Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))).check(
      Schema.isMaxLength(1000)
    )
  ),
  /** Limits of every account that is not listed. */
  default: Schema.optionalKey(AccountLimit),
  /** Limits by account. They replace the default as a whole. */
  accounts: Schema.optionalKey(Schema.Record(LedgerEntry.fields.billingAccountId, AccountLimit))
})

export type AccountLimits = typeof AccountLimits.Type

/** Returns the limits of an account. */
export const limitOf = (limits: AccountLimits, billingAccountId: string): AccountLimit =>
  (limits.accounts !== undefined && Object.hasOwn(limits.accounts, billingAccountId)
    ? limits.accounts[billingAccountId]
    : limits.default) ?? {}

/** Returns whether a model is one that needs no credit. */
export const isFreeModel = ({ freeModels = [] }: Pick<AccountLimits, "freeModels">, model: string): boolean =>
  freeModels.some((pattern) => matches(pattern.split("*"), model))

/** `first*second*last`: the first at the start, the last at the end, the others in order between them. */
const matches = ([first = "", ...rest]: ReadonlyArray<string>, text: string): boolean => {
  if (!text.startsWith(first)) return false
  const last = rest.at(-1)
  if (last === undefined) return text === first
  let from = first.length
  for (const part of rest.slice(0, -1)) {
    const at = text.indexOf(part, from)
    if (at < 0) return false
    from = at + part.length
  }
  return text.length - last.length >= from && text.endsWith(last)
}
