/** Budgets in words, for people and for agents. Pure. */
import type { BudgetName, Exhaustion } from "./RunFigures.ts"

/** Unit of each budget, in words: of one, and of any other amount. */
const budgetUnits: Readonly<Record<BudgetName, readonly [one: string, other: string]>> = {
  calls: ["call", "calls"],
  input_tokens: ["input token", "input tokens"],
  output_tokens: ["output token", "output tokens"],
  cost_usd: ["US dollar", "US dollars"],
  bytes: ["byte", "bytes"],
  concurrent_calls: ["concurrent call", "concurrent calls"],
  requests_per_second: ["request per second", "requests per second"],
  account_calls_per_minute: ["call per minute", "calls per minute"],
  runtime_seconds: ["second", "seconds"]
}

/** Describes the spent share of a run's subagents, such as `the subagents' share of 6 calls is spent (6 used)`. */
export const describeShare = ({ budget, limit, used }: Exhaustion): string =>
  `the subagents' share of ${budgetAmount(budget, limit)} is spent (${used} used)`

/** Describes an amount of a budget, such as `1 call` or `0.5 US dollars`. `figure` is the amount as text. */
export const budgetAmount = (budget: BudgetName, amount: number, figure = String(amount)): string =>
  `${figure} ${budgetUnits[budget][amount === 1 ? 0 : 1]}`

/** Describes a spent budget, such as `the run's model budget of 20 calls is spent (20 used)`. */
export const describeExhaustion = ({ budget, limit, used }: Exhaustion): string =>
  `the run's model budget of ${budgetAmount(budget, limit)} is spent (${used} used)`
