import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { LlmUsage, LlmUsageTotal } from "@cogni/sandbox-core/RunFigures"
import type { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import * as Budget from "../src/internal/policy/Budget.ts"
import * as CallCost from "../src/internal/policy/CallCost.ts"
import type * as Prices from "../src/Prices.ts"

const defaults = { concurrentCallsMax: 100, requestsPerSecondMax: 1000 }
const prices: Prices.Prices = { m: { input: 1_000_000, output: 2_000_000 } }

const ledger = (budget: Partial<LlmBudget> | undefined, options: Partial<Budget.LedgerOptions> = {}) =>
  Budget.make(budget === undefined ? undefined : { onExhausted: "refuse", ...budget }, {
    defaults,
    ...options
  })

const isRefusal = (begun: Budget.Ticket | Budget.Refusal): begun is Budget.Refusal => "exhaustion" in begun

/** Adds the cap that the gateway sets for a call without one. */
const asGateway = (of: Budget.Ledger, call: Partial<Budget.Call>): Budget.Call => ({
  model: "m",
  requestBytes: 3,
  inputTokensMax: 1,
  outputTokensMax: of.answerCaps(["m"]).absent,
  ...call
})

const begin = (of: Budget.Ledger, call: Partial<Budget.Call> = {}): Budget.Ticket => {
  const begun = of.begin(asGateway(of, call))
  if (isRefusal(begun)) return assert.fail(begun.detail)
  return begun
}

const refusal = (of: Budget.Ledger, call: Partial<Budget.Call> = {}): Budget.Refusal => {
  const begun = of.begin(asGateway(of, call))
  return isRefusal(begun) ? begun : assert.fail("the call passed")
}

const call = (of: Budget.Ledger, usage: LlmUsage | undefined, end: Partial<Budget.CallEnd> = {}) =>
  of.end(begin(of), {
    mayHaveRun: true,
    responseBytes: 30,
    ...(usage === undefined ? {} : { usage }),
    ...end
  })

const nothing = {
  calls: 0,
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  callsWithoutUsage: 0,
  callsWithoutCost: 0
}

describe("Budget totals", () => {
  it("add up the figures that the upstream reported for each call", () => {
    const of = ledger(undefined)
    assert.deepStrictEqual(of.total(), nothing)
    call(of, { inputTokens: 10, outputTokens: 5, cacheReadTokens: 4, cacheWriteTokens: 1, costUsd: 0.5 })
    call(of, { inputTokens: 1, outputTokens: 0, costUsd: 0 })
    assert.deepStrictEqual(of.total(), {
      calls: 2,
      inputTokens: 11,
      outputTokens: 5,
      cacheReadTokens: 4,
      cacheWriteTokens: 1,
      costUsd: 0.5,
      callsWithoutUsage: 0,
      callsWithoutCost: 0
    })
  })

  it("include the reservation of a call without usage, as an estimate", () => {
    const of = ledger(undefined)
    assert.deepStrictEqual(call(of, undefined), {
      inputTokens: 1,
      outputTokens: Budget.outputTokensDefault,
      estimated: true
    })
    assert.deepStrictEqual(of.total(), {
      ...nothing,
      calls: 1,
      inputTokens: 1,
      outputTokens: Budget.outputTokensDefault,
      estimatedInputTokens: 1,
      estimatedOutputTokens: Budget.outputTokensDefault,
      callsWithoutUsage: 1,
      callsWithoutCost: 1
    })
  })

  it("include the figures of a partial report, and estimate only the missing ones", () => {
    const of = ledger(undefined, { prices })
    const usage = of.end(begin(of, { outputTokensMax: 50 }), {
      usage: { inputTokens: 7 },
      responseBytes: 30,
      mayHaveRun: true
    })
    assert.deepStrictEqual(usage, {
      inputTokens: 7,
      outputTokens: 50,
      costUsd: 107,
      priceSource: "reservation",
      estimated: true
    })
    assert.deepStrictEqual(of.total(), {
      ...nothing,
      calls: 1,
      inputTokens: 7,
      outputTokens: 50,
      costUsd: 107,
      estimatedInputTokens: 0,
      estimatedOutputTokens: 50,
      estimatedCostUsd: 107,
      callsWithoutUsage: 1
    })
  })

  it("include no reservation and no cost for a call that runs no model", () => {
    const of = ledger({ outputTokensMax: 10, inputTokensMax: 10, costUsdMax: 10 }, { prices })
    const under = begin(of)
    const counting = begin(of, { free: true, inputTokensMax: 1e6 })
    assert.deepStrictEqual(counting.reserved, { inputTokens: 0, outputTokens: 0, costUsd: 0 })
    assert.isUndefined(of.end(counting, { responseBytes: 0, mayHaveRun: true }))
    of.end(under, { usage: { inputTokens: 1, outputTokens: 1 }, responseBytes: 0, mayHaveRun: true })
    assert.deepStrictEqual(of.total(), { ...nothing, calls: 2, inputTokens: 1, outputTokens: 1, costUsd: 3 })
  })

  it("include all open calls as estimates after endAll", () => {
    const of = ledger(undefined)
    const tickets = [begin(of, { outputTokensMax: 10 }), begin(of, { outputTokensMax: 20 })]
    begin(of, { free: true })
    assert.deepStrictEqual(
      of.endAll().map(({ usage }) => usage?.outputTokens),
      [10, 20, undefined]
    )
    const total = of.total()
    assert.strictEqual(total.outputTokens, 30)
    assert.strictEqual(total.callsWithoutUsage, 2)
    of.end(tickets[0]!, { usage: { inputTokens: 1, outputTokens: 1 }, responseBytes: 9, mayHaveRun: true })
    assert.deepStrictEqual(of.endAll(), [])
    assert.deepStrictEqual(of.total(), total)
  })

  it("count an upstream's error as a call without usage", () => {
    const of = ledger({ inputTokensMax: 1, outputTokensMax: 1, costUsdMax: 1 })
    call(of, undefined, { mayHaveRun: false, responseBytes: 9999 })
    assert.deepStrictEqual(of.total(), { ...nothing, calls: 1 })
    begin(of)
  })

  it("use the upstream's cost, else the prices, else leave the cost unknown", () => {
    const of = ledger(undefined, {
      prices: { m: { input: 1_000_000, output: 2_000_000, cacheRead: 100_000, cacheWrite: 1_500_000 } }
    })
    const costs = (usage: LlmUsage) => {
      const before = of.total().costUsd ?? 0
      call(of, usage)
      return Math.round(((of.total().costUsd ?? 0) - before) * 1000) / 1000
    }
    assert.strictEqual(costs({ inputTokens: 10, outputTokens: 5, costUsd: 3 }), 3)
    assert.strictEqual(costs({ inputTokens: 10, outputTokens: 5 }), 20)
    assert.strictEqual(
      costs({ inputTokens: 10, outputTokens: 5, cacheReadTokens: 5, cacheWriteTokens: 2 }),
      16.5
    )
    assert.strictEqual(of.total().callsWithoutCost, 0)
    of.end(begin(of, { model: "__proto__" }), {
      usage: { inputTokens: 1, outputTokens: 1 },
      responseBytes: 1,
      mayHaveRun: true
    })
    assert.strictEqual(of.total().callsWithoutCost, 1)
  })

  it("take the price of the host for tokens that the upstream says cost 0, unless that price is 0", () => {
    const free = { m: { input: 0, output: 0 } }
    const cost = (prices: Prices.Prices | undefined, usage: LlmUsage, mayHaveRun = true) => {
      const of = ledger(undefined, { prices })
      const row = of.end(begin(of, { outputTokensMax: 50 }), { usage, responseBytes: 1, mayHaveRun })
      assert.strictEqual(of.total().costUsd, row?.costUsd)
      assert.strictEqual(of.total().callsWithoutCost, 0)
      return [row?.costUsd, row?.priceSource]
    }
    const whole = { inputTokens: 10, outputTokens: 5, costUsd: 0 }
    assert.deepStrictEqual(cost(prices, whole), [20, "prices"])
    assert.deepStrictEqual(cost(prices, { inputTokens: 10, costUsd: 0 }), [110, "reservation"])
    assert.deepStrictEqual(cost(prices, { outputTokens: 5, costUsd: 0 }), [11, "reservation"])
    assert.deepStrictEqual(cost(prices, { costUsd: 0 }), [101, "reservation"])
    assert.deepStrictEqual(cost(prices, { inputTokens: 0, outputTokens: 0, costUsd: 0 }), [0, undefined])
    assert.deepStrictEqual(cost(prices, { costUsd: 0 }, false), [0, undefined], "an upstream's refusal")
    assert.deepStrictEqual(cost(free, whole), [0, undefined])
    assert.deepStrictEqual(cost(undefined, whole), [0, undefined], "only the upstream has a price")
    const recorded = { ...whole, priceSource: "prices" } as const
    assert.deepStrictEqual(cost(prices, recorded), [0, "prices"], "an audit of the time when it was free")
  })

  it("do not change when a call ends twice or never began", () => {
    const of = ledger({ bytesMax: 1000 })
    const ticket = begin(of)
    const end = {
      usage: { inputTokens: 5, outputTokens: 6, costUsd: 1 },
      responseBytes: 10,
      mayHaveRun: true
    }
    of.end(ticket, end)
    const total = of.total()
    of.end(ticket, end)
    of.end({ ...ticket }, end)
    assert.deepStrictEqual(of.total(), total)
  })
})

describe("Budget exhaustion", () => {
  const final = (found: Budget.Refusal) => {
    assert.isTrue(found.final)
    assert.isUndefined(found.retryAfterSeconds)
    assert.include(found.detail, "No further calls are allowed")
    return found.exhaustion
  }

  it("refuses calls above the maximum", () => {
    const of = ledger({ callsMax: 2 })
    call(of, undefined)
    const under = begin(of)
    assert.isUndefined(of.exhausted())
    assert.deepStrictEqual(final(refusal(of)), { budget: "calls", limit: 2, used: 2 })
    of.end(under, { responseBytes: 0, mayHaveRun: false })
    assert.deepStrictEqual(of.exhausted(), { budget: "calls", limit: 2, used: 2 })
  })

  it("refuses calls when the reported tokens reach the limit", () => {
    const input = ledger({ inputTokensMax: 100 })
    call(input, { inputTokens: 99, outputTokens: 1 })
    call(input, { inputTokens: 40, outputTokens: 1 })
    assert.deepStrictEqual(final(refusal(input)), { budget: "input_tokens", limit: 100, used: 139 })

    const output = ledger({ outputTokensMax: 100 })
    call(output, { inputTokens: 500, outputTokens: 60 })
    assert.strictEqual(output.answerCaps(["m"]).max, 40)
    call(output, { inputTokens: 1, outputTokens: 40 })
    assert.strictEqual(output.answerCaps(["m"]).max, 1)
    assert.deepStrictEqual(final(refusal(output)), { budget: "output_tokens", limit: 100, used: 100 })
  })

  it("charges unreported tokens as reserved, whatever part of the answer arrived", () => {
    const output = ledger({ outputTokensMax: 100 })
    for (const responseBytes of [0, 298]) {
      const usage = output.end(begin(output, { outputTokensMax: 50 }), { responseBytes, mayHaveRun: true })
      assert.deepStrictEqual(usage, { inputTokens: 1, outputTokens: 50, estimated: true })
    }
    assert.deepStrictEqual(final(refusal(output)), { budget: "output_tokens", limit: 100, used: 100 })

    const input = ledger({ inputTokensMax: 100 })
    input.end(begin(input, { inputTokensMax: 101 }), { responseBytes: 0, mayHaveRun: true })
    assert.deepStrictEqual(final(refusal(input)), { budget: "input_tokens", limit: 100, used: 101 })

    const least = ledger({ outputTokensMax: 1 })
    call(least, { inputTokens: 3 }, { responseBytes: 0 })
    assert.deepStrictEqual(final(refusal(least)), { budget: "output_tokens", limit: 1, used: 1 })
  })

  it("counts bytes of requests when they begin, and of answers when they end", () => {
    const of = ledger({ bytesMax: 100 })
    const first = begin(of, { requestBytes: 40 })
    begin(of, { requestBytes: 40 })
    of.end(first, { responseBytes: 15, mayHaveRun: false })
    begin(of, { requestBytes: 5 })
    assert.deepStrictEqual(final(refusal(of, { requestBytes: 1 })), {
      budget: "bytes",
      limit: 100,
      used: 101
    })
  })

  it("refuses calls when the reported or calculated cost reaches the limit", () => {
    const told = ledger({ costUsdMax: 0.3 })
    for (const costUsd of [0.1, 0.1]) call(told, { costUsd, inputTokens: 1, outputTokens: 1 })
    call(told, { costUsd: 0.1, inputTokens: 1, outputTokens: 1 })
    const found = refusal(told)
    assert.strictEqual(final(found).budget, "cost_usd")
    assert.include(found.detail, "0.3 US dollars is spent (0.3 used)")

    const priced = ledger({ costUsdMax: 20 }, { prices })
    call(priced, { inputTokens: 10, outputTokens: 5 })
    assert.deepStrictEqual(final(refusal(priced)), { budget: "cost_usd", limit: 20, used: 20 })
  })

  it("refuses the next call if a cost is unknown, and says how to fix it", () => {
    const of = ledger({ costUsdMax: 10 })
    call(of, { inputTokens: 1, outputTokens: 1, costUsd: 1 })
    call(of, { inputTokens: 1, outputTokens: 1 })
    const found = refusal(of)
    assert.deepStrictEqual(final(found), { budget: "cost_usd", limit: 10, used: 1 })
    assert.include(found.detail, "the cost of a call is unknown")
    assert.include(found.detail, "configure prices")
    assert.include(found.detail, "include_cost_in_streaming_usage")

    const hungUp = ledger({ costUsdMax: 10 })
    call(hungUp, undefined)
    assert.strictEqual(final(refusal(hungUp)).budget, "cost_usd")

    const failed = ledger({ costUsdMax: 10 })
    call(failed, undefined, { mayHaveRun: false })
    begin(failed)
  })

  it("refuses calls when the price of the host reaches the limit, although the upstream says that all cost 0", () => {
    const of = ledger({ costUsdMax: 20 }, { prices })
    call(of, { inputTokens: 10, outputTokens: 5, costUsd: 0 })
    assert.deepStrictEqual(final(refusal(of)), { budget: "cost_usd", limit: 20, used: 20 })
  })

  it("charges a call that was cut off the price of its reservation", () => {
    const of = ledger({ costUsdMax: 21 }, { prices })
    const usage = of.end(begin(of, { outputTokensMax: 10 }), { responseBytes: 0, mayHaveRun: true })
    assert.deepStrictEqual(usage, {
      inputTokens: 1,
      outputTokens: 10,
      costUsd: 21,
      priceSource: "reservation",
      estimated: true
    })
    assert.deepStrictEqual(final(refusal(of)), { budget: "cost_usd", limit: 21, used: 21 })
    assert.strictEqual(of.total().callsWithoutCost, 0)

    const dear = { m: { input: 1_000_000, output: 0, cacheRead: 100_000, cacheWrite: 2_000_000 } }
    const written = ledger({ costUsdMax: 100 }, { prices: dear })
    assert.strictEqual(begin(written, { inputTokensMax: 10 }).reserved.costUsd, 20, "all of it may be cached")
  })

  it("keeps the first exhausted budget as the reason, even if a call would fit again", () => {
    const of = ledger({ bytesMax: 100, callsMax: 3 })
    refusal(of, { requestBytes: 200 })
    const first = { budget: "bytes", limit: 100, used: 200 }
    assert.deepStrictEqual(refusal(of, { requestBytes: 1 }).exhaustion, first)
    assert.deepStrictEqual(of.exhausted(), first)
    assert.strictEqual(of.total().calls, 0)
  })

  it("reports an exhausted budget before one that requires waiting", () => {
    const of = ledger({ concurrentCallsMax: 1, inputTokensMax: 100, outputTokensMax: 10 })
    begin(of, { inputTokensMax: 99 })
    assert.strictEqual(refusal(of, { free: true }).exhaustion.budget, "concurrent_calls")
    const both = ledger({ inputTokensMax: 100, outputTokensMax: 10 })
    const told = begin(both, { outputTokensMax: 5 })
    begin(both, { outputTokensMax: 5, inputTokensMax: 99 })
    both.end(told, { usage: { inputTokens: 1, outputTokens: 10 }, responseBytes: 0, mayHaveRun: true })
    assert.strictEqual(refusal(both).exhaustion.budget, "output_tokens")
  })
})

describe("Budget with waiting", () => {
  const passing = (found: Budget.Refusal) => {
    assert.isFalse(found.final)
    assert.isAbove(found.retryAfterSeconds ?? 0, 0)
    assert.include(found.detail, "try again")
    return found.exhaustion
  }

  it("refuses calls above the concurrency limit until one ends", () => {
    for (const of of [
      ledger({ concurrentCallsMax: 2 }),
      ledger(undefined, { defaults: { ...defaults, concurrentCallsMax: 2 } })
    ]) {
      const first = begin(of)
      begin(of)
      assert.deepStrictEqual(passing(refusal(of)), { budget: "concurrent_calls", limit: 2, used: 2 })
      of.end(first, { responseBytes: 0, mayHaveRun: false })
      begin(of)
      assert.isUndefined(of.exhausted())
      assert.strictEqual(of.total().calls, 3)
    }
  })

  it("refuses a call while open calls reserve the remaining tokens", () => {
    const of = ledger({ inputTokensMax: 100 })
    const first = begin(of, { inputTokensMax: 100 })
    assert.deepStrictEqual(passing(refusal(of)), { budget: "input_tokens", limit: 100, used: 100 })
    of.end(first, { usage: { inputTokens: 10, outputTokens: 1 }, responseBytes: 0, mayHaveRun: true })
    begin(of)

    const output = ledger({ outputTokensMax: 100 })
    const capped = begin(output, { outputTokensMax: 60 })
    assert.strictEqual(output.answerCaps(["m"]).max, 40)
    assert.deepStrictEqual(passing(refusal(output, { outputTokensMax: 41 })), {
      budget: "output_tokens",
      limit: 100,
      used: 60
    })
    begin(output, { outputTokensMax: 40 })
    assert.strictEqual(output.answerCaps(["m"]).max, 1)
    output.end(capped, { usage: { inputTokens: 1, outputTokens: 5 }, responseBytes: 0, mayHaveRun: true })
    assert.strictEqual(output.answerCaps(["m"]).max, 55)
    assert.isUndefined(output.exhausted())
  })

  it("refuses an outdated cap, and offers one that fits on a retry", () => {
    const of = ledger({ outputTokensMax: 100 })
    call(of, { inputTokens: 1, outputTokens: 90 })
    passing(refusal(of, { outputTokensMax: 100 }))
    assert.strictEqual(of.answerCaps(["m"]).max, 10)
    begin(of, { outputTokensMax: 10 })

    const priced = ledger({ costUsdMax: 100 }, { prices })
    call(priced, { inputTokens: 0, outputTokens: 40 })
    passing(refusal(priced, { outputTokensMax: 50 }))
    begin(priced, { outputTokensMax: priced.answerCaps(["m"]).max! })
  })

  it("refuses input that does not fit beside open calls, but allows it alone", () => {
    const of = ledger({ inputTokensMax: 100 })
    const first = begin(of, { inputTokensMax: 10 })
    assert.strictEqual(passing(refusal(of, { inputTokensMax: 91 })).budget, "input_tokens")
    of.end(first, { usage: { inputTokens: 10, outputTokens: 1 }, responseBytes: 0, mayHaveRun: true })
    begin(of, { inputTokensMax: 91 })
  })

  it("refuses a call while open calls reserve the remaining cost", () => {
    const of = ledger({ costUsdMax: 100 }, { prices })
    const first = begin(of, { outputTokensMax: 50 })
    assert.deepStrictEqual(passing(refusal(of)), { budget: "cost_usd", limit: 100, used: 101 })
    of.end(first, { usage: { inputTokens: 1, outputTokens: 1 }, responseBytes: 0, mayHaveRun: true })
    begin(of)
  })

  it("records the host's cost with its source, and keeps the upstream's", () => {
    const of = ledger(undefined, { prices })
    const ended = (usage: LlmUsage) => of.end(begin(of), { usage, responseBytes: 0, mayHaveRun: true })
    assert.deepStrictEqual(ended({ inputTokens: 1, outputTokens: 2 }), {
      inputTokens: 1,
      outputTokens: 2,
      costUsd: 5,
      priceSource: "prices"
    })
    const told = { inputTokens: 1, outputTokens: 2, costUsd: 0.5 }
    assert.deepStrictEqual(ended(told), told)
  })

  it("allows no other call beside one to a model without a price", () => {
    const of = ledger({ costUsdMax: 100 }, { prices })
    const priced = begin(of, { outputTokensMax: 1 })
    assert.strictEqual(passing(refusal(of, { model: "unpriced" })).budget, "cost_usd")
    of.end(priced, { usage: { inputTokens: 1, outputTokens: 1 }, responseBytes: 0, mayHaveRun: true })
    const unpriced = begin(of, { model: "unpriced" })
    assert.strictEqual(unpriced.reserved.costUsd, 97)
    for (const model of ["m", "unpriced"])
      assert.strictEqual(passing(refusal(of, { model, outputTokensMax: 1 })).budget, "cost_usd")
    of.end(unpriced, {
      usage: { inputTokens: 1, outputTokens: 1, costUsd: 0.5 },
      responseBytes: 0,
      mayHaveRun: true
    })
    begin(of, { model: "unpriced" })
  })

  it("allows a burst of one second's requests, then refills over time", () => {
    const of = ledger({ requestsPerSecondMax: 4 })
    const passes = (nowMillis: number) => of.request(nowMillis) === undefined
    assert.deepStrictEqual([0, 0, 0, 0, 0].map(passes), [true, true, true, true, false])
    const found = of.request(100)!
    assert.deepStrictEqual(passing(found), { budget: "requests_per_second", limit: 4, used: 4 })
    assert.closeTo(found.retryAfterSeconds!, 0.15, 1e-9)
    assert.deepStrictEqual([249, 250, 251, 500, 500].map(passes), [false, true, false, true, false])
    // Idle time does not accumulate.
    assert.deepStrictEqual([9e7, 9e7, 9e7, 9e7, 9e7].map(passes), [true, true, true, true, false])
    // A clock that goes back neither refills nor takes anything.
    assert.deepStrictEqual([0, 8e7, 9e7, 9e7 + 250].map(passes), [false, false, false, true])
    assert.isUndefined(of.exhausted())
  })
})

describe("Budget of an account", () => {
  const account = (changes: Partial<Budget.AccountRule> = {}): Budget.AccountRule => ({
    reservesCost: true,
    take: () => 0,
    callsPerMinuteMax: () => 3,
    ...changes
  })

  it("tells the agent that its account reserved the budget, once that is spent", () => {
    const of = ledger({ costUsdMax: 3 }, { prices, account: account() })
    call(of, { inputTokens: 1, outputTokens: 1 })
    const found = refusal(of)
    assert.isTrue(found.final)
    assert.strictEqual(
      found.detail,
      "The account that pays reserved 3 US dollars for this run, and it is spent (3 used). " +
        "No further calls are allowed: finish with what you have."
    )
    assert.deepStrictEqual(of.exhausted(), { budget: "cost_usd", limit: 3, used: 3 })
    const own = ledger({ costUsdMax: 3 }, { prices, account: account({ reservesCost: false }) })
    call(own, { inputTokens: 1, outputTokens: 1 })
    assert.include(refusal(own).detail, "The sandbox's budget of 3 US dollars is spent")
  })

  it("makes a call wait while the account has no more in this minute", () => {
    let wait = 0
    const of = ledger(undefined, { account: account({ take: () => wait }) })
    begin(of)
    wait = 14_001
    const found = refusal(of)
    assert.isFalse(found.final)
    assert.deepStrictEqual(found.exhaustion, { budget: "account_calls_per_minute", limit: 3, used: 3 })
    assert.strictEqual(found.retryAfterSeconds, 15)
    assert.include(found.detail, "limited to 3 calls per minute, in all its runs together. Wait 15 s")
    wait = 0
    begin(of)
  })

  it("takes nothing from the account for a call that is refused for another reason", () => {
    let taken = 0
    const take = () => {
      taken += 1
      return 0
    }
    const of = ledger({ callsMax: 1 }, { account: account({ take }) })
    begin(of)
    refusal(of)
    const busy = ledger({ concurrentCallsMax: 1 }, { account: account({ take }) })
    begin(busy)
    refusal(busy)
    assert.strictEqual(taken, 2)
  })
})

describe("Budget for any sequence of calls", () => {
  const Step = Schema.Struct({
    begin: Schema.Boolean,
    which: Schema.Int,
    bytes: Schema.Int,
    mayHaveRun: Schema.Boolean,
    usage: Schema.optionalKey(LlmUsage),
    capped: Schema.Boolean
  })
  const Limits = Schema.Struct({
    callsMax: Schema.Int,
    concurrentCallsMax: Schema.Int,
    inputTokensMax: Schema.Int,
    outputTokensMax: Schema.Int,
    priced: Schema.Boolean
  })
  const small = (value: number, max: number) => 1 + (Math.abs(value) % max)
  /** Limits the reported usage to the reservation, as models do. */
  const within = (usage: LlmUsage | undefined, ticket: Budget.Ticket): LlmUsage | undefined => {
    if (usage === undefined) return undefined
    const { costUsd: _cost, estimated: _estimated, ...told } = usage
    return {
      ...told,
      ...(told.inputTokens === undefined
        ? {}
        : { inputTokens: told.inputTokens % (ticket.reserved.inputTokens + 1) }),
      ...(told.outputTokens === undefined
        ? {}
        : { outputTokens: told.outputTokens % (ticket.reserved.outputTokens + 1) })
    }
  }

  it.prop(
    "never exceeds a limit, and its totals sum the reported and reserved figures and never decrease",
    [Limits, Schema.Array(Step)],
    ([limits, steps]) => {
      const budget = {
        callsMax: small(limits.callsMax, 12),
        concurrentCallsMax: small(limits.concurrentCallsMax, 5),
        inputTokensMax: small(limits.inputTokensMax, 400),
        outputTokensMax: small(limits.outputTokensMax, 400),
        ...(limits.priced ? { costUsdMax: small(limits.callsMax, 900) } : {})
      }
      const of = ledger(budget, limits.priced ? { prices } : {})
      const open: Array<Budget.Ticket> = []
      const sum = { calls: 0, inputTokens: 0, outputTokens: 0, callsWithoutUsage: 0 }
      let first: unknown
      for (const step of steps.flatMap((one) => [{ ...one, begin: true }, one])) {
        const before = of.total()
        if (step.begin) {
          const { absent, max } = of.answerCaps(["m"])
          const cap = step.capped ? Math.min(small(step.which, 50), max!) : absent!
          const begun = of.begin({
            model: "m",
            requestBytes: small(step.bytes, 300),
            inputTokensMax: small(step.bytes, 100),
            outputTokensMax: cap
          })
          if (isRefusal(begun)) {
            if (begun.final) first ??= begun.exhaustion
            if (begun.final) assert.deepStrictEqual(begun.exhaustion, first)
          } else {
            assert.isUndefined(first)
            open.push(begun)
            sum.calls += 1
          }
        } else if (open.length > 0) {
          const [ticket] = open.splice(Math.abs(step.which) % open.length, 1)
          const usage = within(step.usage, ticket!)
          const end = {
            responseBytes: 0,
            mayHaveRun: step.mayHaveRun,
            ...(usage === undefined ? {} : { usage })
          }
          const row = of.end(ticket!, end)
          assert.deepStrictEqual(of.end(ticket!, { ...end, responseBytes: 1e9 }), row)
          const isTold = usage?.inputTokens !== undefined || usage?.outputTokens !== undefined
          if (step.mayHaveRun || isTold) {
            const isWhole = usage?.inputTokens !== undefined && usage.outputTokens !== undefined
            assert.strictEqual(row!.inputTokens, usage?.inputTokens ?? ticket!.reserved.inputTokens)
            assert.strictEqual(row!.outputTokens, usage?.outputTokens ?? ticket!.reserved.outputTokens)
            assert.strictEqual(row!.estimated, isWhole ? undefined : true)
            sum.inputTokens += row!.inputTokens!
            sum.outputTokens += row!.outputTokens!
            if (!isWhole) sum.callsWithoutUsage += 1
          } else assert.deepStrictEqual(row, usage)
        }
        const total = of.total()
        assert.isAtMost(open.length, budget.concurrentCallsMax)
        assert.isAtMost(total.calls, budget.callsMax)
        assert.deepInclude(total, sum)
        assert.isTrue(Schema.is(LlmUsageTotal)(total))
        for (const [name, value] of Object.entries(before))
          assert.isAtLeast(total[name as keyof LlmUsageTotal] ?? 0, value)
        assert.deepStrictEqual(of.exhausted(), first)
        // Holds for any number of concurrent calls and any way in which they ended.
        const underWay = (name: "inputTokens" | "outputTokens" | "costUsd") =>
          open.reduce((all, { reserved }) => all + reserved[name], 0)
        assert.isAtMost(total.outputTokens + underWay("outputTokens"), budget.outputTokensMax)
        assert.isBelow(total.inputTokens + underWay("inputTokens"), budget.inputTokensMax + 100)
        if (limits.priced)
          assert.isBelow((total.costUsd ?? 0) + underWay("costUsd"), budget.costUsdMax! + 102 + 1e-6)
      }
    },
    { arbitrary: { runs: 1000, seed: "budget-steps" } }
  )

  it.prop(
    "charges and refuses the same whether the upstream says nothing about costs, or that they are 0",
    [Schema.Array(Step), Schema.Int],
    ([steps, max]) => {
      const budget = { costUsdMax: small(max, 900) }
      const [silent, lying] = [ledger(budget, { prices }), ledger(budget, { prices })]
      for (const { bytes, capped, mayHaveRun, usage: reported, which } of steps) {
        const asked = {
          inputTokensMax: small(bytes, 100),
          ...(capped ? { outputTokensMax: small(which, 50) } : {})
        }
        const begun = silent.begin(asGateway(silent, asked))
        const again = lying.begin(asGateway(lying, asked))
        assert.deepStrictEqual(again, begun)
        if (isRefusal(begun) || isRefusal(again)) continue
        const { priceSource: _source, ...usage } = within(reported, begun) ?? {}
        const end = { mayHaveRun, responseBytes: 0 }
        const row = silent.end(begun, { ...end, usage })
        const charged = lying.end(again, { ...end, usage: { ...usage, costUsd: 0 } })
        assert.strictEqual(charged?.costUsd, row?.costUsd ?? 0)
        assert.deepStrictEqual({ ...lying.total(), costUsd: 0 }, { ...silent.total(), costUsd: 0 })
        assert.strictEqual(lying.total().costUsd ?? 0, silent.total().costUsd ?? 0)
      }
    },
    { arbitrary: { runs: 200, seed: "zero-costs" } }
  )

  it.prop(
    "never allows more than a burst and the rate in any second",
    [Schema.Int, Schema.Array(Schema.Int)],
    ([max, waits]) => {
      const perSecondMax = small(max, 20)
      const of = ledger({ requestsPerSecondMax: perSecondMax })
      const passed: Array<number> = []
      let nowMillis = 0
      for (const wait of waits.flatMap((wait) => [wait, 0, 0, 0, 0])) {
        nowMillis += Math.abs(wait) % 300
        if (of.request(nowMillis) === undefined) passed.push(nowMillis)
      }
      for (const [index, at] of passed.entries()) {
        const within = passed.slice(index).filter((later) => later < at + 1000).length
        // The bucket may have been full at the beginning of the second, and fills once in it.
        assert.isAtMost(within, 2 * perSecondMax)
      }
      assert.isAtMost(passed.length, perSecondMax + Math.ceil((nowMillis * perSecondMax) / 1000))
    }
  )
})

describe("CallCost", () => {
  it("return no cost for a model without a price, or without token figures", () => {
    assert.isUndefined(CallCost.costOf(prices, { model: "other" }, { inputTokens: 1, outputTokens: 1 }))
    assert.isUndefined(CallCost.costOf(prices, { model: "toString" }, { inputTokens: 1, outputTokens: 1 }))
    assert.isUndefined(CallCost.costOf(undefined, { model: "m" }, { inputTokens: 1, outputTokens: 1 }))
    assert.isUndefined(CallCost.costOf(prices, { model: "m" }, { inputTokens: 1 }))
    assert.isUndefined(CallCost.costOf(prices, { model: "m" }, { outputTokens: 1 }))
  })

  it("never charge more cached tokens than the input has", () => {
    const cached = { m: { input: 1_000_000, output: 0, cacheRead: 500_000, cacheWrite: 2_000_000 } }
    const cost = (cacheReadTokens: number, cacheWriteTokens: number) =>
      CallCost.costOf(
        cached,
        { model: "m" },
        { inputTokens: 10, outputTokens: 0, cacheReadTokens, cacheWriteTokens }
      )
    assert.deepStrictEqual(
      [cost(0, 0), cost(10, 0), cost(0, 10), cost(99, 99), cost(4, 99)],
      [10, 5, 20, 5, 14]
    )
  })
})

describe("a budget of the run's key at the upstream", () => {
  const budget = { limitUsd: 2, usedUsd: 2.5 }

  it("closes the ledger if no other call is open, also for a run without a budget", () => {
    for (const of of [ledger(undefined), ledger({ costUsdMax: 9 })]) {
      const first = begin(of)
      const spent = of.keySpent(budget)
      assert.deepInclude(spent, { final: true, exhaustion: { budget: "cost_usd", limit: 2, used: 2.5 } })
      of.end(first, { mayHaveRun: false, responseBytes: 0 })
      assert.strictEqual(refusal(of).detail, spent.detail)
      assert.deepStrictEqual(of.exhausted(), spent.exhaustion)
    }
  })

  it("makes a call wait while others are open, because the upstream counts what they have reserved", () => {
    const of = ledger(undefined)
    const other = begin(of)
    begin(of)
    const waiting = of.keySpent(budget)
    assert.isFalse(waiting.final)
    assert.isDefined(waiting.retryAfterSeconds)
    of.end(other, { mayHaveRun: true, responseBytes: 1 })
    begin(of)
    assert.isUndefined(of.exhausted())
  })
})
