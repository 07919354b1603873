/**
 * Recognizes LiteLLM's error for a key whose budget is spent. Pure.
 *
 * Versions of LiteLLM answer it with different statuses (400, 422, 429), but with one type. Its text has both amounts.
 * Budgets of a user, a team or an account have the same type, and name their owner.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

export interface KeyBudget {
  readonly limitUsd: number
  readonly usedUsd: number
}

const Spent = Schema.fromJsonString(
  Schema.Struct({
    error: Schema.Struct({
      type: Schema.Literal("budget_exceeded"),
      message: Schema.optionalKey(Schema.Unknown)
    })
  })
)

const decode = Schema.decodeUnknownOption(Spent)

/**
 * Returns the budget that an error of LiteLLM says is spent, or nothing for any other error. `knownUsd` is the budget
 * that the key was created with, for an error without amounts.
 */
export const ofError = (
  status: number,
  text: string,
  knownUsd: number | undefined
): KeyBudget | undefined => {
  if (status < 400 || status >= 500) return undefined
  const found = decode(text)
  if (Option.isNone(found)) return undefined
  const words = String(found.value.error.message ?? "").slice(0, 1000)
  if (/\b(?:User|Team|Org\w*|Tag|Project|Customer)=/u.test(words)) return undefined
  const limitUsd =
    amount(/max[_ ]budget(?: for [a-z]+)?: ?\$?(\d[\d.e-]{0,30})/iu.exec(words)?.[1]) ?? knownUsd
  if (limitUsd === undefined) return undefined
  const usedUsd = amount(/(?:cost|spend(?: for [a-z]+)?): ?\$?(\d[\d.e-]{0,30})/iu.exec(words)?.[1])
  return { limitUsd, usedUsd: Math.max(limitUsd, usedUsd ?? 0) }
}

const amount = (text: string | undefined): number | undefined => {
  const value = Number(text?.replace(/\.$/u, ""))
  return text !== undefined && Number.isFinite(value) ? value : undefined
}
