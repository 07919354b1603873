/**
 * The ledger of a run: how much of its models it may use, and how much it has used.
 *
 * Pure, without a clock. Before a call goes upstream, the ledger reserves the maximum of what it can use: the input
 * tokens that can be billed, the cap of its answer, and the price of both. When the call ends, the figures that the
 * upstream reported are charged. A missing figure is charged as reserved and recorded as estimated, so that ending a
 * call early never costs less than its whole answer. Figures are missing when the answer was cut off or held no usage,
 * or was not complete in time after the agent had gone or the run had ended.
 *
 * | Budget | Can be exceeded by |
 * |---|---|
 * | output tokens | nothing, as long as the upstream keeps to the cap it was sent |
 * | bytes | the answers of the open calls |
 * | input tokens | what one call reserved: alone, it may begin with less left than that |
 * | cost, with prices | what one call reserved for its input, for the same reason |
 * | cost, without a price for the model | one call: it reserves the whole rest, so that it runs alone |
 *
 * A call under a cost budget that ends without a reported or calculated cost closes the ledger. A reported cost of 0
 * does not count for tokens of which the host knows a price: the upstream may only lack that price.
 *
 * `ChargeRule.ts` decides which calls may have run a model.
 */
import type { BudgetName, Exhaustion, LlmUsage, LlmUsageTotal } from "@cogni/sandbox-core/RunFigures"
import { budgetAmount } from "@cogni/sandbox-core/BudgetWords"
import type { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import * as Allowance from "./Allowance.ts"
import * as CallCost from "./CallCost.ts"
import type * as Prices from "../../Prices.ts"

/** Why a request is refused, now or for the rest of the run. */
export interface Refusal {
  readonly exhaustion: Exhaustion
  /** Whether every further call is refused too, so that waiting does not help. */
  readonly final: boolean
  readonly retryAfterSeconds?: number | undefined
  /** Message for the agent: which budget is exhausted and what to do. */
  readonly detail: string
}

/** A call that is about to go upstream. */
export interface Call {
  /** The upstream's name of the model. */
  readonly model: string
  readonly requestBytes: number
  /** Maximum input tokens that it can be billed: see `InputBound.ts`. */
  readonly inputTokensMax: number
  /** It asks the provider to cache its input for an hour, which costs more. */
  readonly cachesForHour?: boolean | undefined
  /** Cap of its answer, in tokens: 0 if it has no output. A call without one reserves `outputTokensDefault`. */
  readonly outputTokensMax?: number | undefined
  /** It runs no model, such as counting tokens. Reserves nothing and costs nothing. */
  readonly free?: boolean | undefined
}

/** An open call, with its reservation. */
export interface Ticket extends Call {
  readonly reserved: { readonly inputTokens: number; readonly outputTokens: number; readonly costUsd: number }
  /** Maximum cost of the call. Absent if its model has no price. */
  readonly costUsdMax?: number
}

export interface CallEnd {
  /** The figures that the upstream reported. */
  readonly usage?: LlmUsage | undefined
  readonly responseBytes: number
  /** Whether the model may have run: see `ChargeRule.ts`. */
  readonly mayHaveRun: boolean
}

/** Caps for the answer of the next call, in tokens. */
export interface AnswerCaps {
  /** Maximum that a call may request; undefined if no budget bounds it. */
  readonly max: number | undefined
  /** Cap for a call that sets none; undefined if such a call can go without one. */
  readonly absent: number | undefined
}

export interface LedgerOptions {
  readonly prices?: Prices.Prices | undefined
  /** Used where the budget sets no value. */
  readonly defaults: { readonly concurrentCallsMax: number; readonly requestsPerSecondMax: number }
  /** Limits of the account that pays, beside the budget. */
  readonly account?: AccountRule | undefined
}

/** Limits that the account that pays sets for a run. */
export interface AccountRule {
  /** True if the cost budget is what was reserved for the run, which the agent then learns. */
  readonly reservesCost: boolean
  /** Counts a call of the account. Returns the milliseconds to wait if it may make none now, otherwise 0. */
  readonly take: () => number
  /** Calls per minute that the account may make now. */
  readonly callsPerMinuteMax: () => number
}

export interface Ledger {
  /** Counts any request against the rate limit, which allows a burst of one second's requests. */
  readonly request: (nowMillis: number) => Refusal | undefined
  /** Returns why the budget does not allow this call, if it does not. Reserves nothing, and looks at no rate. */
  readonly check: (call: Call) => Refusal | undefined
  /** Reserves the budget of a call that is about to go upstream. A call with a ticket counts. */
  readonly begin: (call: Call) => Ticket | Refusal
  /**
   * Charges a finished call and returns the usage to record for it. Ending the same ticket again charges nothing and
   * returns the same usage.
   */
  readonly end: (ticket: Ticket, end: CallEnd) => LlmUsage | undefined
  /** Charges every open call as one that may have run, because nothing more will be reported for it. */
  readonly endAll: () => ReadonlyArray<{ readonly ticket: Ticket; readonly usage: LlmUsage | undefined }>
  /**
   * Refuses the call because the upstream's budget of the run's own key is spent, and closes the ledger, unless other
   * calls are open: LiteLLM counts what it has reserved for them, which their ends return.
   */
  readonly keySpent: (budget: { readonly limitUsd: number; readonly usedUsd: number }) => Refusal
  /** Returns the caps for a call to any of these models. */
  readonly answerCaps: (models: ReadonlyArray<string>) => AnswerCaps
  /** Returns the number of calls so far and the usage of those that ended, with estimates for missing figures. */
  readonly total: () => LlmUsageTotal
  /** The first budget that was found exhausted. */
  readonly exhausted: () => Exhaustion | undefined
}

/**
 * Cap for a call that sets none while a budget bounds answers, and reservation of a call without a cap, in tokens. As
 * high as widely used models accept.
 */
export const outputTokensDefault = 16_384

export const make = (budget: LlmBudget | undefined, { account, defaults, prices }: LedgerOptions): Ledger => {
  const concurrentMax = budget?.concurrentCallsMax ?? defaults.concurrentCallsMax
  const perSecondMax = budget?.requestsPerSecondMax ?? defaults.requestsPerSecondMax
  const rate = Allowance.make(perSecondMax)
  const open = new Set<Ticket>()
  const ended = new WeakMap<Ticket, LlmUsage>()
  const totals = makeTotals()
  const charged = { inputTokens: 0, outputTokens: 0, costUsd: 0, bytes: 0 }
  /** Number of calls whose cost cannot even be estimated. */
  let costsUnknown = 0
  let closed: Refusal | undefined

  const held = (of: keyof Ticket["reserved"]): number => {
    let sum = 0
    for (const { reserved } of open) sum += reserved[of]
    return sum
  }
  const left = (of: keyof Ticket["reserved"], max: number): number =>
    Math.max(0, max - charged[of] - held(of))

  const reserve = (call: Call): Pick<Ticket, "costUsdMax" | "reserved"> => {
    if (call.free === true) return { reserved: { inputTokens: 0, outputTokens: 0, costUsd: 0 } }
    const tokens = {
      inputTokens: Math.max(1, call.inputTokensMax),
      outputTokens: call.outputTokensMax === 0 ? 0 : Math.max(1, call.outputTokensMax ?? outputTokensDefault)
    }
    const costUsdMax = CallCost.costMaxOf(prices, call, tokens)
    if (costUsdMax !== undefined) return { reserved: { ...tokens, costUsd: costUsdMax }, costUsdMax }
    const costUsd = budget?.costUsdMax === undefined ? 0 : Math.max(0, budget.costUsdMax - charged.costUsd)
    return { reserved: { ...tokens, costUsd } }
  }

  /** Refuses a call if the budget is exhausted, or too small for the call beside the open calls or alone. */
  const over = (
    name: BudgetName,
    of: keyof Ticket["reserved"],
    max: number | undefined,
    { alone, wanted }: { readonly wanted: number; readonly alone: number }
  ) => {
    if (max === undefined) return undefined
    if (charged[of] >= max)
      return name === "cost_usd" && account?.reservesCost === true
        ? reservationSpent(max, charged[of])
        : spent(name, max, charged[of])
    const under = held(of)
    const needed = under > 0 ? wanted : alone
    return needed > 0 && exceeds(charged[of] + under + needed, max)
      ? waiting(name, max, charged[of] + under)
      : undefined
  }

  const overspent = (call: Call, reserved: Ticket["reserved"]): Refusal | undefined => {
    if (closed !== undefined || budget === undefined) return closed
    const { bytesMax, callsMax, costUsdMax, inputTokensMax, outputTokensMax } = budget
    if (callsMax !== undefined && totals.calls() >= callsMax) return spent("calls", callsMax, totals.calls())
    if (bytesMax !== undefined && charged.bytes + call.requestBytes > bytesMax)
      return spent("bytes", bytesMax, charged.bytes + call.requestBytes)
    if (costUsdMax !== undefined && costsUnknown > 0) return costUnknown(costUsdMax, charged.costUsd)
    const { inputTokens, outputTokens } = reserved
    // A cap that was set before other calls began is too high now. A retry gets one that fits.
    const answerCost =
      outputTokens > 1 ? (CallCost.costMaxOf(prices, call, { inputTokens: 0, outputTokens }) ?? 0) : 0
    // An exhausted budget matters more to the agent than one that requires waiting.
    const found = [
      over("input_tokens", "inputTokens", inputTokensMax, { wanted: inputTokens, alone: 0 }),
      over("output_tokens", "outputTokens", outputTokensMax, { wanted: outputTokens, alone: outputTokens }),
      over("cost_usd", "costUsd", costUsdMax, { wanted: reserved.costUsd, alone: answerCost })
    ].filter((refusal) => refusal !== undefined)
    return found.find(({ final }) => final) ?? found[0]
  }

  const refusedFor = (call: Call, reserved: Ticket["reserved"]): Refusal | undefined => {
    const refusal = overspent(call, reserved)
    if (refusal?.final === true) closed ??= refusal
    return refusal
  }

  const settle = (
    ticket: Ticket,
    { mayHaveRun, responseBytes, usage: told }: CallEnd
  ): LlmUsage | undefined => {
    charged.bytes += responseBytes
    const isTold = told?.inputTokens !== undefined || told?.outputTokens !== undefined
    if (ticket.free === true || !(mayHaveRun || isTold)) {
      charged.costUsd += told?.costUsd ?? 0
      totals.addCost(told?.costUsd)
      return told
    }
    const usage = withoutMissingPrice(ticket, told, prices)
    const row = rowOf(ticket, usage, prices)
    charged.inputTokens += row.inputTokens
    charged.outputTokens += row.outputTokens
    const cost = row.costUsd ?? CallCost.costOf(prices, ticket, row)
    charged.costUsd += cost ?? 0
    if (cost === undefined) costsUnknown += 1
    totals.add(usage, row, cost)
    return row.costUsd !== undefined || cost === undefined
      ? row
      : { ...row, costUsd: cost, priceSource: "prices" }
  }

  const end = (ticket: Ticket, how: CallEnd): LlmUsage | undefined => {
    if (!open.delete(ticket)) return ended.get(ticket)
    const usage = settle(ticket, how)
    if (usage !== undefined) ended.set(ticket, usage)
    return usage
  }

  return {
    request: (nowMillis) =>
      rate.take(nowMillis)
        ? undefined
        : waiting("requests_per_second", perSecondMax, perSecondMax, rate.waitMillis(nowMillis, 1) / 1000),
    check: (call) => refusedFor(call, reserve(call).reserved),
    begin: (call) => {
      const reservation = reserve(call)
      const refusal = refusedFor(call, reservation.reserved)
      if (refusal !== undefined) return refusal
      if (open.size >= concurrentMax) return waiting("concurrent_calls", concurrentMax, open.size)
      // Last, so that a call that is refused for another reason takes nothing from the account's other runs.
      const waitMillis = account?.take() ?? 0
      if (waitMillis > 0) return accountWaits(account!.callsPerMinuteMax(), waitMillis)
      const ticket: Ticket = { ...call, ...reservation }
      open.add(ticket)
      totals.begin()
      charged.bytes += call.requestBytes
      return ticket
    },
    end,
    endAll: () =>
      [...open].map((ticket) => ({ ticket, usage: end(ticket, { mayHaveRun: true, responseBytes: 0 }) })),
    answerCaps: (models) => {
      const { costUsdMax, outputTokensMax } = budget ?? {}
      if (costUsdMax === undefined && outputTokensMax === undefined)
        return { max: undefined, absent: undefined }
      const bounds = outputTokensMax === undefined ? [] : [left("outputTokens", outputTokensMax)]
      for (const model of costUsdMax === undefined ? [] : models) {
        const costOfOne = CallCost.costMaxOf(prices, { model }, { inputTokens: 0, outputTokens: 1 }) ?? 0
        if (costOfOne > 0) bounds.push(Math.floor(left("costUsd", costUsdMax!) / costOfOne))
      }
      const max = bounds.length === 0 ? undefined : Math.max(1, Math.min(...bounds))
      return { max, absent: Math.min(max ?? outputTokensDefault, outputTokensDefault) }
    },
    total: totals.read,
    keySpent: ({ limitUsd, usedUsd }) =>
      closed ??
      (open.size > 1
        ? waiting("cost_usd", limitUsd, usedUsd)
        : (closed = spent("cost_usd", limitUsd, usedUsd))),
    exhausted: () => closed?.exhaustion
  }
}

/**
 * Ignores a reported cost of 0 if the host's own price of the call is higher: LiteLLM reports 0 for a model of which it
 * has no price. A cost with a source is the host's own, from an audit.
 */
const withoutMissingPrice = (
  ticket: Ticket,
  told: LlmUsage | undefined,
  prices: Prices.Prices | undefined
): LlmUsage | undefined => {
  if (told?.costUsd !== 0 || told.priceSource !== undefined) return told
  const { costUsd: _zero, ...tokens } = told
  const row = rowOf(ticket, tokens, prices)
  const own = row.costUsd ?? CallCost.costOf(prices, ticket, row)
  return own !== undefined && own > 0 ? tokens : told
}

/** Returns the reported figures, with the reservation in place of missing ones. */
const rowOf = (ticket: Ticket, told: LlmUsage | undefined, prices: Prices.Prices | undefined) => {
  const inputTokens = told?.inputTokens ?? ticket.reserved.inputTokens
  const outputTokens = told?.outputTokens ?? ticket.reserved.outputTokens
  if (told?.inputTokens !== undefined && told.outputTokens !== undefined)
    return { ...told, inputTokens, outputTokens }
  const costUsd =
    told?.costUsd ??
    (told?.inputTokens === undefined
      ? CallCost.costMaxOf(prices, ticket, { inputTokens, outputTokens })
      : CallCost.costOf(prices, ticket, { ...told, outputTokens }))
  return {
    ...told,
    inputTokens,
    outputTokens,
    ...(costUsd === undefined ? {} : { costUsd }),
    ...(costUsd === undefined || told?.costUsd !== undefined ? {} : { priceSource: "reservation" as const }),
    estimated: true as const
  }
}

/**
 * Recovers the figures that the upstream reported from the recorded usage of a call: those that differ from its
 * reservation.
 */
export const toldOf = (ticket: Ticket, row: LlmUsage, prices: Prices.Prices | undefined): LlmUsage => {
  const { costUsd, estimated, inputTokens, outputTokens, priceSource, ...rest } = row
  if (estimated !== true) return row
  const told: LlmUsage = {
    ...rest,
    ...(inputTokens === undefined || inputTokens === ticket.reserved.inputTokens ? {} : { inputTokens }),
    ...(outputTokens === undefined || outputTokens === ticket.reserved.outputTokens ? {} : { outputTokens })
  }
  // An audit of an earlier version does not name the source.
  return costUsd === undefined || priceSource !== undefined || rowOf(ticket, told, prices).costUsd === costUsd
    ? told
    : { ...told, costUsd }
}

const makeTotals = () => {
  const tokens = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0 }
  const estimated = { inputTokens: 0, outputTokens: 0 }
  let calls = 0
  let callsWithoutUsage = 0
  let callsWithoutCost = 0
  let costUsd: number | undefined
  let estimatedCostUsd: number | undefined
  const addCost = (cost: number | undefined) => {
    if (cost !== undefined) costUsd = (costUsd ?? 0) + cost
  }
  return {
    begin: () => {
      calls += 1
    },
    calls: () => calls,
    addCost,
    add: (told: LlmUsage | undefined, row: ReturnType<typeof rowOf>, cost: number | undefined) => {
      tokens.inputTokens += row.inputTokens
      tokens.outputTokens += row.outputTokens
      tokens.cacheReadTokens += told?.cacheReadTokens ?? 0
      tokens.cacheWriteTokens += told?.cacheWriteTokens ?? 0
      addCost(cost)
      if (cost === undefined) callsWithoutCost += 1
      if (told?.inputTokens !== undefined && told.outputTokens !== undefined) return
      callsWithoutUsage += 1
      estimated.inputTokens += told?.inputTokens === undefined ? row.inputTokens : 0
      estimated.outputTokens += told?.outputTokens === undefined ? row.outputTokens : 0
      if (told?.costUsd === undefined && cost !== undefined) estimatedCostUsd = (estimatedCostUsd ?? 0) + cost
    },
    read: (): LlmUsageTotal => ({
      calls,
      ...tokens,
      ...(costUsd === undefined ? {} : { costUsd }),
      ...(callsWithoutUsage === 0
        ? {}
        : { estimatedInputTokens: estimated.inputTokens, estimatedOutputTokens: estimated.outputTokens }),
      ...(estimatedCostUsd === undefined ? {} : { estimatedCostUsd }),
      callsWithoutUsage,
      callsWithoutCost
    })
  }
}

const noFurther = "No further calls are allowed: finish with what you have."

const spent = (budget: BudgetName, limit: number, used: number): Refusal => ({
  exhaustion: { budget, limit, used },
  final: true,
  detail:
    `The sandbox's budget of ${budgetAmount(budget, limit, figure(limit))} is spent ` +
    `(${budget === "bytes" ? `${figure(used)} with this request` : `${figure(used)} used`}). ${noFurther}`
})

/** The agent may report it, so it says that the run's share is spent, not that the account has no credit. */
const reservationSpent = (limit: number, used: number): Refusal => ({
  exhaustion: { budget: "cost_usd", limit, used },
  final: true,
  detail:
    `The account that pays reserved ${budgetAmount("cost_usd", limit, figure(limit))} for this run, ` +
    `and it is spent (${figure(used)} used). ${noFurther}`
})

const accountWaits = (limit: number, waitMillis: number): Refusal => ({
  exhaustion: { budget: "account_calls_per_minute", limit, used: limit },
  final: false,
  retryAfterSeconds: Math.ceil(waitMillis / 1000),
  detail:
    `The account that pays is limited to ${budgetAmount("account_calls_per_minute", limit)}, in all its runs ` +
    `together. Wait ${Math.ceil(waitMillis / 1000)} s, then try again.`
})

const costUnknown = (limit: number, used: number): Refusal => ({
  exhaustion: { budget: "cost_usd", limit, used },
  final: true,
  detail:
    `The sandbox may spend ${figure(limit)} US dollars, and the cost of a call is unknown. ${noFurther} ` +
    "The operator must configure prices for the model, or configure LiteLLM to send costs " +
    "(include_cost_in_streaming_usage)."
})

const waiting = (budget: BudgetName, limit: number, used: number, retryAfterSeconds = 1): Refusal => ({
  exhaustion: { budget, limit, used },
  final: false,
  retryAfterSeconds,
  detail:
    budget === "concurrent_calls" || budget === "requests_per_second"
      ? `The sandbox is limited to ${budgetAmount(budget, limit, figure(limit))}. Wait a moment, then try again.`
      : `Open calls may use the rest of the sandbox's budget of ${budgetAmount(budget, limit, figure(limit))}. ` +
        "Wait until they end, then try again."
})

/** Compares sums of costs without their rounding error. */
const exceeds = (value: number, max: number): boolean => value > max * (1 + 1e-9)

/** Formats a sum without its rounding error. */
const figure = (value: number): string => String(Number(value.toPrecision(12)))
