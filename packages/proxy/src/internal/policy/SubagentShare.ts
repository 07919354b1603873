/**
 * The part of a run's budget and time that its subagents may use together.
 *
 * Pure, without a clock. An agent's program marks the calls of its subagents with a header. Such a call must fit into
 * the share and into the budget of the run; any other call only into the budget. So an agent that hides its subagents
 * gains nothing beyond the run's own budget, and an honest one keeps the rest for its own answer.
 *
 * The time of the subagents runs from a call of one until the next call of the main agent, and while a call of one is
 * open. So it includes the commands of a subagent while the main agent waits. A call that is open when the time ends is
 * not cut off.
 */
import type { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import { budgetAmount } from "@cogni/sandbox-core/BudgetWords"
import type { Exhaustion } from "@cogni/sandbox-core/RunFigures"
import * as Budget from "./Budget.ts"
import type { Header } from "./RoutePolicy.ts"

/**
 * Headers that mark the call of a subagent: of Claude Code (its ID), of opencode (the session that started it), and of
 * agents of applications. Their values come from the sandbox, so they are not recorded.
 */
const marks: ReadonlySet<string> = new Set([
  "x-claude-code-agent-id",
  "x-parent-session-id",
  "x-cogni-subagent"
])

/** Returns whether these headers of an agent mark the call of a subagent. */
export const marksSubagent = (headers: ReadonlyArray<Header>): boolean =>
  headers.some(([name]) => marks.has(name.toLowerCase()))

export interface RunCall extends Budget.Call {
  readonly isSubagent: boolean
}

export interface RunRefusal extends Budget.Refusal {
  /** Only subagents are refused. The main agent can still call. */
  readonly isOfSubagents?: boolean | undefined
}

/** The ledger of a run, which also knows its subagents. */
export interface RunLedger extends Omit<Budget.Ledger, "answerCaps" | "begin" | "check"> {
  readonly begin: (call: RunCall, nowMillis: number) => Budget.Ticket | RunRefusal
  readonly answerCaps: (models: ReadonlyArray<string>, isSubagent: boolean) => Budget.AnswerCaps
}

interface ShareOptions {
  readonly budget: LlmBudget | undefined
  readonly runtimeSecondsMax: number
  readonly prices: Budget.LedgerOptions["prices"]
}

/** Adds the share of the subagents to the ledger of a run. Without a share, the ledger alone decides. */
export const make = (
  ledger: Budget.Ledger,
  { budget, prices, runtimeSecondsMax }: ShareOptions
): RunLedger => {
  const share = budget?.subagentShareMax
  if (budget === undefined || share === undefined)
    return {
      ...ledger,
      begin: (call) => ledger.begin(call),
      answerCaps: (models) => ledger.answerCaps(models)
    }
  const part = Budget.make(partOf(budget, share), { prices, defaults: unlimited })
  const parts = new WeakMap<Budget.Ticket, Budget.Ticket>()
  const time = makeTime(share * runtimeSecondsMax)

  const refusedFor = (call: RunCall, nowMillis: number): RunRefusal | undefined => {
    // A spent budget of the run matters more. The ledger refuses with it, and may stop the run.
    if (ledger.exhausted() !== undefined || ledger.check(call)?.final === true) return undefined
    const exhaustion = time.spent(nowMillis)
    if (exhaustion !== undefined) return ofSubagents({ exhaustion, final: true, detail: "" })
    const refusal = part.check(call)
    return refusal && ofSubagents(refusal)
  }
  const end = (ticket: Budget.Ticket, how: Budget.CallEnd) => {
    const inner = parts.get(ticket)
    if (inner !== undefined && parts.delete(ticket)) {
      part.end(inner, how)
      time.ended()
    }
    return ledger.end(ticket, how)
  }

  return {
    ...ledger,
    begin: (call, nowMillis) => {
      const refusal = call.isSubagent ? refusedFor(call, nowMillis) : undefined
      if (refusal !== undefined) return refusal
      const ticket = ledger.begin(call)
      if ("exhaustion" in ticket) return ticket
      if (!call.isSubagent) {
        time.mainCalls(nowMillis)
        return ticket
      }
      const inner = part.begin(call)
      // It was checked in the same turn, and has no limit that a check does not see.
      if (!("exhaustion" in inner)) parts.set(ticket, inner)
      time.began(nowMillis)
      return ticket
    },
    end,
    endAll: () => {
      part.endAll()
      return ledger.endAll()
    },
    answerCaps: (models, isSubagent) => {
      const caps = ledger.answerCaps(models)
      if (!isSubagent) return caps
      const own = part.answerCaps(models)
      return { max: least(caps.max, own.max), absent: least(caps.absent, own.absent) }
    }
  }
}

/** Limits that the run's own ledger applies to all calls. */
const unlimited = { concurrentCallsMax: Infinity, requestsPerSecondMax: Infinity }

const partOf = (budget: LlmBudget, share: number): LlmBudget => {
  const whole = (max: number | undefined) =>
    // A share such as 0.29 of 100 has no exact product. One that is less than a call would allow no subagent at all.
    max === undefined ? undefined : Math.max(1, Math.floor(max * share + 1e-9))
  const figures = {
    callsMax: whole(budget.callsMax),
    inputTokensMax: whole(budget.inputTokensMax),
    outputTokensMax: whole(budget.outputTokensMax),
    bytesMax: whole(budget.bytesMax),
    costUsdMax: budget.costUsdMax === undefined ? undefined : budget.costUsdMax * share
  }
  const known = Object.fromEntries(Object.entries(figures).filter(([, max]) => max !== undefined))
  return { ...known, onExhausted: "refuse" }
}

const makeTime = (secondsMax: number) => {
  let usedMillis = 0
  let sinceMillis: number | undefined
  let open = 0
  const read = (nowMillis: number) =>
    usedMillis + (sinceMillis === undefined ? 0 : Math.max(0, nowMillis - sinceMillis))
  return {
    began: (nowMillis: number) => {
      open += 1
      sinceMillis ??= nowMillis
    },
    ended: () => {
      open -= 1
    },
    mainCalls: (nowMillis: number) => {
      usedMillis = read(nowMillis)
      sinceMillis = open > 0 ? nowMillis : undefined
    },
    spent: (nowMillis: number): Exhaustion | undefined => {
      const used = read(nowMillis) / 1000
      return used < secondsMax
        ? undefined
        : { budget: "runtime_seconds", limit: rounded(secondsMax), used: rounded(used) }
    }
  }
}

const rounded = (seconds: number): number => Math.round(seconds * 10) / 10

const least = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined ? other : other === undefined ? one : Math.min(one, other)

const ofSubagents = (refusal: Budget.Refusal): RunRefusal => {
  const { budget, limit, used } = refusal.exhaustion
  const amount = budgetAmount(budget, limit, String(Number(limit.toPrecision(12))))
  return {
    ...refusal,
    isOfSubagents: true,
    detail: refusal.final
      ? `The share of the subagents, ${amount}, is spent (${Number(used.toPrecision(12))} used). No further calls of ` +
        "subagents are allowed: the main agent can finish without them."
      : `Open calls may use the rest of the share of the subagents, ${amount}. Wait until they end, then try again.`
  }
}
