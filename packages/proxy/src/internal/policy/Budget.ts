/**
 * The ledger of a run: how much of its models it may use, and how much it has used.
 *
 * Pure, without a clock of its own. Before a call goes upstream, the most it may come to is reserved: the most that its
 * input can be billed, the cap of its answer, and the price of both. When the call ends, what the upstream told is
 * charged. A figure that it did not tell (the agent hung up, the answer was cut, it held no usage, the run ended) is
 * charged as reserved and recorded as estimated, so that ending a call early never costs less than its whole answer.
 *
 * | Budget | Can be exceeded by |
 * |---|---|
 * | output tokens | nothing, as long as the upstream keeps to the cap it was sent |
 * | bytes | the answers of the calls under way |
 * | input tokens | what one call reserved: alone, it may begin with less left than that |
 * | cost, with prices | what one call reserved for its input, for the same reason |
 * | cost, without a price for the model | one call: it reserves all that is left, so no other runs beside it |
 *
 * A call under a cost budget that ends without a cost, told or priced, closes the ledger.
 *
 * Which calls may have run a model at all is decided by `internal/ChargeRule.ts`.
 */
import type { BudgetName, Exhaustion, LlmUsage, LlmUsageTotal } from "@cogni/sandbox-core/RunResult"
import { budgetUnits } from "@cogni/sandbox-core/SandboxError"
import type { LlmBudget } from "@cogni/sandbox-core/SandboxSpec"
import * as Allowance from "./Allowance.ts"
import * as Prices from "../../Prices.ts"

/** Why a request may not pass now, or ever. */
export interface Refusal {
  readonly exhaustion: Exhaustion
  /** Waiting does not help: nothing passes any more. */
  readonly final: boolean
  readonly retryAfterSeconds?: number | undefined
  /** For the agent: what is spent and what to do. */
  readonly detail: string
}

/** A call that is about to go upstream. */
export interface Call {
  /** As the upstream knows it. */
  readonly model: string
  readonly requestBytes: number
  /** The most that its input can be billed: see `internal/InputBound.ts`. */
  readonly inputTokensMax: number
  /** It asks the provider to cache its input for an hour, which costs more. */
  readonly cachesForHour?: boolean | undefined
  /** The cap of its answer, as it is sent. A call that is sent without one reserves `outputTokensDefault`. */
  readonly outputTokensMax?: number | undefined
  /** Runs no model, as counting tokens does: reserves nothing and costs nothing. */
  readonly free?: boolean | undefined
}

/** A call that is under way. */
export interface Ticket extends Call {
  readonly reserved: { readonly inputTokens: number; readonly outputTokens: number; readonly costUsd: number }
}

export interface CallEnd {
  /** The figures that the upstream told. */
  readonly usage?: LlmUsage | undefined
  readonly responseBytes: number
  /** The model was run, or may have been: see `internal/ChargeRule.ts`. */
  readonly mayHaveRun: boolean
}

/** How long the answer of the next call may be, in tokens. */
export interface AnswerCaps {
  /** No call may ask for more; undefined where no budget bounds it. */
  readonly max: number | undefined
  /** The cap put into a call that names none; undefined where such a call may go out without one. */
  readonly absent: number | undefined
}

export interface LedgerOptions {
  readonly prices?: Prices.Prices | undefined
  /** Where the budget says nothing. */
  readonly defaults: { readonly concurrentCallsMax: number; readonly requestsPerSecondMax: number }
}

export interface Ledger {
  /** Any request at all: held to the rate, of which a second's worth may come at once. */
  readonly request: (nowMillis: number) => Refusal | undefined
  /** A call that is about to go upstream; once it has a ticket it counts. */
  readonly begin: (call: Call) => Ticket | Refusal
  /**
   * Charges a call that is over, and returns the usage to record for it. A second end of the same ticket charges
   * nothing and returns the same usage.
   */
  readonly end: (ticket: Ticket, end: CallEnd) => LlmUsage | undefined
  /** Charges every call under way as one that may have run: nothing will be heard of them any more. */
  readonly endAll: () => ReadonlyArray<{ readonly ticket: Ticket; readonly usage: LlmUsage | undefined }>
  /** The caps of a call to any of these models. */
  readonly answerCaps: (models: ReadonlyArray<string>) => AnswerCaps
  /** All calls that have ended, with estimates for the figures that the upstream did not tell. */
  readonly total: () => LlmUsageTotal
  /** The first budget that was found spent for good. */
  readonly exhausted: () => Exhaustion | undefined
}

/**
 * The cap put into a call that names none while a budget bounds answers, and what is reserved for a call that goes out
 * without a cap. As high as models in wide use accept.
 */
export const outputTokensDefault = 16_384

export const make = (budget: LlmBudget | undefined, { defaults, prices }: LedgerOptions): Ledger => {
  const concurrentMax = budget?.concurrentCallsMax ?? defaults.concurrentCallsMax
  const perSecondMax = budget?.requestsPerSecondMax ?? defaults.requestsPerSecondMax
  const rate = Allowance.make(perSecondMax)
  const open = new Set<Ticket>()
  const ended = new WeakMap<Ticket, LlmUsage>()
  const totals = makeTotals()
  const charged = { inputTokens: 0, outputTokens: 0, costUsd: 0, bytes: 0 }
  /** Calls whose cost not even an estimate can tell. */
  let costsUnknown = 0
  let closed: Refusal | undefined

  const held = (of: keyof Ticket["reserved"]): number => {
    let sum = 0
    for (const { reserved } of open) sum += reserved[of]
    return sum
  }
  const left = (of: keyof Ticket["reserved"], max: number): number =>
    Math.max(0, max - charged[of] - held(of))

  const reserve = (call: Call): Ticket["reserved"] => {
    if (call.free === true) return { inputTokens: 0, outputTokens: 0, costUsd: 0 }
    const tokens = {
      inputTokens: Math.max(1, call.inputTokensMax),
      outputTokens: Math.max(1, call.outputTokensMax ?? outputTokensDefault)
    }
    const costUsd = Prices.costMaxOf(prices, call, tokens)
    if (costUsd !== undefined || budget?.costUsdMax === undefined) return { ...tokens, costUsd: costUsd ?? 0 }
    return { ...tokens, costUsd: Math.max(0, budget.costUsdMax - charged.costUsd) }
  }

  /** Spent; or too little is left beside the calls under way; or for what the call must fit into even when it is alone. */
  const over = (
    name: BudgetName,
    of: keyof Ticket["reserved"],
    max: number | undefined,
    { alone, wanted }: { readonly wanted: number; readonly alone: number }
  ) => {
    if (max === undefined) return undefined
    if (charged[of] >= max) return spent(name, max, charged[of])
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
    // A cap from before other calls began is too high now; asked again, the call gets one that fits.
    const answerCost =
      outputTokens > 1 ? (Prices.costMaxOf(prices, call, { inputTokens: 0, outputTokens }) ?? 0) : 0
    // What is spent for good is said before what will pass.
    const found = [
      over("input_tokens", "inputTokens", inputTokensMax, { wanted: inputTokens, alone: 0 }),
      over("output_tokens", "outputTokens", outputTokensMax, { wanted: outputTokens, alone: outputTokens }),
      over("cost_usd", "costUsd", costUsdMax, { wanted: reserved.costUsd, alone: answerCost })
    ].filter((refusal) => refusal !== undefined)
    return found.find(({ final }) => final) ?? found[0]
  }

  const settle = (ticket: Ticket, { mayHaveRun, responseBytes, usage }: CallEnd): LlmUsage | undefined => {
    charged.bytes += responseBytes
    const isTold = usage?.inputTokens !== undefined || usage?.outputTokens !== undefined
    if (ticket.free === true || !(mayHaveRun || isTold)) {
      charged.costUsd += usage?.costUsd ?? 0
      totals.addCost(usage?.costUsd)
      return usage
    }
    const row = rowOf(ticket, usage, prices)
    charged.inputTokens += row.inputTokens
    charged.outputTokens += row.outputTokens
    const cost = row.costUsd ?? Prices.costOf(prices, ticket, row)
    charged.costUsd += cost ?? 0
    if (cost === undefined) costsUnknown += 1
    totals.add(usage, row, cost)
    return row
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
    begin: (call) => {
      const reserved = reserve(call)
      const refusal = overspent(call, reserved)
      if (refusal?.final === true) closed ??= refusal
      if (refusal !== undefined) return refusal
      if (open.size >= concurrentMax) return waiting("concurrent_calls", concurrentMax, open.size)
      const ticket: Ticket = { ...call, reserved }
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
        const costOfOne = Prices.costMaxOf(prices, { model }, { inputTokens: 0, outputTokens: 1 }) ?? 0
        if (costOfOne > 0) bounds.push(Math.floor(left("costUsd", costUsdMax!) / costOfOne))
      }
      const max = bounds.length === 0 ? undefined : Math.max(1, Math.min(...bounds))
      return { max, absent: Math.min(max ?? outputTokensDefault, outputTokensDefault) }
    },
    total: totals.read,
    exhausted: () => closed?.exhaustion
  }
}

/** What was told, with the reservation in place of what was not. */
const rowOf = (ticket: Ticket, told: LlmUsage | undefined, prices: Prices.Prices | undefined) => {
  const inputTokens = told?.inputTokens ?? ticket.reserved.inputTokens
  const outputTokens = told?.outputTokens ?? ticket.reserved.outputTokens
  if (told?.inputTokens !== undefined && told.outputTokens !== undefined)
    return { ...told, inputTokens, outputTokens }
  const costUsd =
    told?.costUsd ??
    (told?.inputTokens === undefined
      ? Prices.costMaxOf(prices, ticket, { inputTokens, outputTokens })
      : Prices.costOf(prices, ticket, { ...told, outputTokens }))
  return {
    ...told,
    inputTokens,
    outputTokens,
    ...(costUsd === undefined ? {} : { costUsd }),
    estimated: true as const
  }
}

/**
 * The figures that the upstream told, out of the usage that was recorded for a call: what differs from its reservation.
 */
export const toldOf = (ticket: Ticket, row: LlmUsage, prices: Prices.Prices | undefined): LlmUsage => {
  const { costUsd, estimated, inputTokens, outputTokens, ...rest } = row
  if (estimated !== true) return row
  const told: LlmUsage = {
    ...rest,
    ...(inputTokens === undefined || inputTokens === ticket.reserved.inputTokens ? {} : { inputTokens }),
    ...(outputTokens === undefined || outputTokens === ticket.reserved.outputTokens ? {} : { outputTokens })
  }
  return costUsd === undefined || rowOf(ticket, told, prices).costUsd === costUsd
    ? told
    : { ...told, costUsd }
}

/** All calls that have ended. */
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

/** Sums of costs leave a tail that is no money. */
const exceeds = (value: number, max: number): boolean => value > max * (1 + 1e-9)

/** Without the tail that adding leaves. */
const figure = (value: number): string => String(Number(value.toPrecision(12)))
