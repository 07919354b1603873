/**
 * What a run may have of its model, and what it has had.
 *
 * A pure ledger without a clock of its own. What is counted is what the upstream said; where it said nothing (an
 * answer that the agent cut off, say) an estimate is held against the budgets instead, so that hanging up before the
 * bill comes buys nothing, and the totals say how many calls they do not hold. What calls under way may come to is
 * reserved, so that many at once cannot overshoot together.
 */
import type { BudgetName, Exhaustion, LlmUsage, LlmUsageTotal } from "@cogni/sandbox-core/RunResult"
import { budgetUnits } from "@cogni/sandbox-core/SandboxError"
import type { LlmBudget } from "@cogni/sandbox-core/SandboxSpec"
import * as Prices from "./Prices.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** Why a request may not pass now, or ever. @category models */
export interface Refusal {
  readonly exhaustion: Exhaustion
  /** Waiting does not help: nothing passes any more. */
  readonly final: boolean
  readonly retryAfterSeconds?: number | undefined
  /** For the agent: what is spent and what to do. */
  readonly detail: string
}

/** A call that is about to go upstream. @category models */
export interface Call {
  /** As the upstream knows it. */
  readonly model: string
  readonly requestBytes: number
  /** What its answer is capped to, which is reserved until it is over. Nothing is where it is left out. */
  readonly outputTokensMax?: number | undefined
}

/** A call that is under way. @category models */
export interface Ticket extends Call {
  readonly reserved: { readonly inputTokens: number; readonly outputTokens: number; readonly costUsd: number }
}

/** @category models */
export interface CallEnd {
  /** What the upstream said of it, as far as it did. */
  readonly usage?: LlmUsage | undefined
  readonly responseBytes: number
  /** The model was run, or may have been. */
  readonly answered: boolean
}

/** @category models */
export interface LedgerOptions {
  readonly prices?: Prices.Prices | undefined
  /** Where the budget says nothing. */
  readonly defaults: { readonly concurrentCallsMax: number; readonly requestsPerSecondMax: number }
}

/** @category models */
export interface Ledger {
  /** Any request at all: held to the rate, of which a second's worth may come at once. */
  readonly request: (nowMillis: number) => Refusal | undefined
  /** A call that is about to go upstream; once it has a ticket it counts. */
  readonly begin: (call: Call) => Ticket | Refusal
  /** It is over. A second time for the same ticket changes nothing. */
  readonly end: (ticket: Ticket, end: CallEnd) => void
  /** What is left for the answer of a further call; undefined where that is not limited. */
  readonly remainingOutputTokens: () => number | undefined
  /** What the upstream said. A call of which it told only a part is in the counts with that, and is without usage. */
  readonly total: () => LlmUsageTotal
  /** The first budget that was found spent for good. */
  readonly exhausted: () => Exhaustion | undefined
}

// -----------------------------------------------------------------------------
// constants
// -----------------------------------------------------------------------------

/** An estimate on the high side: text has three to four bytes a token. @category constants */
export const bytesPerToken = 3

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = (budget: LlmBudget | undefined, { defaults, prices }: LedgerOptions): Ledger => {
  const concurrentMax = budget?.concurrentCallsMax ?? defaults.concurrentCallsMax
  const rate = makeRate(budget?.requestsPerSecondMax ?? defaults.requestsPerSecondMax)
  const open = new Set<Ticket>()
  const totals = makeTotals()
  /** What is held against the budgets: what was told, and estimates where it was not. */
  const charged = { inputTokens: 0, outputTokens: 0, costUsd: 0, bytes: 0 }
  /** Calls of which not even an estimate can say what they cost. */
  let costsUnknown = 0
  let closed: Refusal | undefined

  const held = (of: keyof Ticket["reserved"]): number => {
    let sum = 0
    for (const { reserved } of open) sum += reserved[of]
    return sum
  }

  /** Spent, or bound to be by what is under way, or too little for this call beside what is under way. */
  const over = (name: BudgetName, of: keyof Ticket["reserved"], max: number | undefined, wanted = 0) => {
    if (max === undefined) return undefined
    if (charged[of] >= max) return spent(name, max, charged[of])
    const used = charged[of] + held(of)
    return used >= max || (open.size > 0 && used + wanted > max) ? waiting(name, max, used) : undefined
  }

  const overspent = (call: Call): Refusal | undefined => {
    if (closed !== undefined || budget === undefined) return closed
    const { bytesMax, callsMax, costUsdMax, inputTokensMax, outputTokensMax } = budget
    if (callsMax !== undefined && totals.calls() >= callsMax) return spent("calls", callsMax, totals.calls())
    if (bytesMax !== undefined && charged.bytes + call.requestBytes > bytesMax)
      return spent("bytes", bytesMax, charged.bytes + call.requestBytes)
    if (costUsdMax !== undefined && costsUnknown > 0) return costUnknown(costUsdMax, charged.costUsd)
    // What is spent for good is said before what will pass.
    const found = [
      over("input_tokens", "inputTokens", inputTokensMax),
      over("output_tokens", "outputTokens", outputTokensMax, call.outputTokensMax),
      over("cost_usd", "costUsd", costUsdMax)
    ].filter((refusal) => refusal !== undefined)
    return found.find(({ final }) => final) ?? found[0]
  }

  const settle = (ticket: Ticket, { answered, responseBytes, usage }: CallEnd) => {
    charged.bytes += responseBytes
    const ran = answered || usage?.inputTokens !== undefined || usage?.outputTokens !== undefined
    const estimate = {
      inputTokens: ran ? (usage?.inputTokens ?? tokensOf(ticket.requestBytes)) : 0,
      outputTokens: ran ? (usage?.outputTokens ?? tokensOf(responseBytes)) : 0
    }
    charged.inputTokens += estimate.inputTokens
    charged.outputTokens += estimate.outputTokens
    const cost = usage?.costUsd ?? Prices.costOf(prices, ticket.model, usage ?? {})
    const likely = cost ?? (ran ? Prices.costOf(prices, ticket.model, { ...usage, ...estimate }) : 0)
    charged.costUsd += likely ?? 0
    if (likely === undefined) costsUnknown += 1
    totals.add(ran, usage, cost)
  }

  return {
    request: rate,
    begin: (call) => {
      const refusal = overspent(call)
      if (refusal?.final === true) closed ??= refusal
      if (refusal !== undefined) return refusal
      if (open.size >= concurrentMax) return waiting("concurrent_calls", concurrentMax, open.size)
      const reserved = { inputTokens: tokensOf(call.requestBytes), outputTokens: call.outputTokensMax ?? 0 }
      const costUsd = Prices.costOf(prices, call.model, reserved) ?? 0
      const ticket: Ticket = { ...call, reserved: { ...reserved, costUsd } }
      open.add(ticket)
      totals.begin()
      charged.bytes += call.requestBytes
      return ticket
    },
    end: (ticket, end) => {
      if (open.delete(ticket)) settle(ticket, end)
    },
    remainingOutputTokens: () =>
      budget?.outputTokensMax === undefined
        ? undefined
        : Math.max(0, budget.outputTokensMax - charged.outputTokens - held("outputTokens")),
    total: totals.read,
    exhausted: () => closed?.exhaustion
  }
}

/** What the upstream has said of all calls. */
const makeTotals = () => {
  const tokens = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0 }
  let calls = 0
  let callsWithoutUsage = 0
  let callsWithoutCost = 0
  let costUsd: number | undefined
  return {
    begin: () => {
      calls += 1
    },
    calls: () => calls,
    add: (ran: boolean, usage: LlmUsage | undefined, cost: number | undefined) => {
      tokens.inputTokens += usage?.inputTokens ?? 0
      tokens.outputTokens += usage?.outputTokens ?? 0
      tokens.cacheReadTokens += usage?.cacheReadTokens ?? 0
      tokens.cacheWriteTokens += usage?.cacheWriteTokens ?? 0
      if (ran && (usage?.inputTokens === undefined || usage.outputTokens === undefined))
        callsWithoutUsage += 1
      if (cost !== undefined) costUsd = (costUsd ?? 0) + cost
      else if (ran) callsWithoutCost += 1
    },
    read: (): LlmUsageTotal => ({
      calls,
      ...tokens,
      ...(costUsd === undefined ? {} : { costUsd }),
      callsWithoutUsage,
      callsWithoutCost
    })
  }
}

/** A bucket that fills in a second. */
const makeRate = (perSecondMax: number) => {
  let allowance = perSecondMax
  let filledMillis: number | undefined
  return (nowMillis: number): Refusal | undefined => {
    const passedMillis = Math.max(0, nowMillis - (filledMillis ?? nowMillis))
    allowance = Math.min(perSecondMax, allowance + (passedMillis * perSecondMax) / 1000)
    filledMillis = Math.max(filledMillis ?? nowMillis, nowMillis)
    if (allowance < 1)
      return waiting("requests_per_second", perSecondMax, perSecondMax, (1 - allowance) / perSecondMax)
    allowance -= 1
    return undefined
  }
}

// -----------------------------------------------------------------------------
// refusals
// -----------------------------------------------------------------------------

const noFurther = "No further call will pass: finish with what you have."

const spent = (budget: BudgetName, limit: number, used: number): Refusal => ({
  exhaustion: { budget, limit, used },
  final: true,
  detail:
    `The sandbox's budget of ${figure(limit)} ${budgetUnits[budget]} is spent ` +
    `(${budget === "bytes" ? `${figure(used)} with this request` : `${figure(used)} used`}). ${noFurther}`
})

const costUnknown = (limit: number, used: number): Refusal => ({
  exhaustion: { budget: "cost_usd", limit, used },
  final: true,
  detail:
    `The sandbox may spend ${figure(limit)} US dollars, and the cost of a call is unknown. ${noFurther} ` +
    "Whoever runs the sandbox should give prices for the model, or have LiteLLM send costs " +
    "(include_cost_in_streaming_usage)."
})

const waiting = (budget: BudgetName, limit: number, used: number, retryAfterSeconds = 1): Refusal => ({
  exhaustion: { budget, limit, used },
  final: false,
  retryAfterSeconds,
  detail:
    budget === "concurrent_calls" || budget === "requests_per_second"
      ? `The sandbox may have ${figure(limit)} ${budgetUnits[budget]}. Wait a moment, then try again.`
      : `Calls under way may come to the rest of the sandbox's budget of ${figure(limit)} ${budgetUnits[budget]}. ` +
        "Wait until they are over, then try again."
})

/** Without the tail that adding leaves. */
const figure = (value: number): string => String(Number(value.toPrecision(12)))

const tokensOf = (bytes: number): number => Math.max(1, Math.ceil(bytes / bytesPerToken))
