/** Explains why an account may not start a run, and what to change. Pure. */
import { AccountBusy, InsufficientCredits } from "@cogni/sandbox-core/SandboxReason"
import { type AccountRefusal, exceedsWhole, type MoneyRefusal } from "../AccountDecision.ts"
import { periodsOf } from "../AccountStanding.ts"
import * as Money from "../Money.ts"

/** Seconds after which a place or a reservation of another run may be free again. */
const retrySeconds = 10

/** A run that is refused: whose it is, when it asks, and whether it has a cost budget of its own. */
interface Refused {
  readonly billingAccountId: string
  readonly now: string
  readonly hasBudget: boolean
}

export const refusalOf = (refusal: AccountRefusal, run: Refused): AccountBusy | InsufficientCredits => {
  const { billingAccountId, now } = run
  if (refusal.limit === "runs")
    return new AccountBusy({
      billingAccountId,
      detail: `it has ${refusal.runs} open runs, and its limit is ${refusal.concurrentRunsMax}`,
      remedy: "Wait until one ends, or raise its limit",
      retrySeconds
    })
  if (exceedsWhole(refusal)) return beyondWhole(refusal, run)
  const { asked: amount, limit, reserved, spent, usdMax } = refusal
  const { to } = periodsOf(now)[limit]
  const waits = spent + amount <= Money.fromUsd(usdMax)
  return new InsufficientCredits({
    billingAccountId,
    detail:
      `its limit is ${usdMax} US dollars a ${limit}, of which ${Money.format(spent)} are spent and ` +
      `${Money.format(reserved)} are reserved by other runs, and this run may spend ${Money.format(amount)}`,
    remedy:
      `Give the run a smaller cost budget (llm.budget.costUsdMax), ` +
      `${waits ? "wait until other runs end" : `wait until the ${limit} ends, at ${to}`}, or raise the limit`,
    retrySeconds: waits ? retrySeconds : Math.max(1, Math.ceil((Date.parse(to) - Date.parse(now)) / 1000))
  })
}

/** The run alone exceeds the limit, so no time to try again is named. */
const beyondWhole = (
  { asked: amount, limit, usdMax }: MoneyRefusal,
  { billingAccountId, hasBudget }: Refused
): InsufficientCredits => {
  const raise = `raise the account's limit (${limit}UsdMax)`
  if (usdMax === 0)
    return new InsufficientCredits({
      billingAccountId,
      detail: `its limit is 0 US dollars a ${limit}, so it can use only free models`,
      remedy: `Use a free model, or ${raise}`
    })
  return new InsufficientCredits({
    billingAccountId,
    detail:
      `${hasBudget ? "this run's cost budget" : "the estimate for a run without a cost budget"} is ` +
      `${Money.format(amount)} US dollars, more than the account's whole limit of ${usdMax} a ${limit}`,
    remedy:
      `Waiting does not help: ${hasBudget ? "lower the run's cost budget" : "give the run a cost budget"} ` +
      `(llm.budget.costUsdMax) ${hasBudget ? "to" : "of"} at most ${usdMax}, or ${raise}`
  })
}
