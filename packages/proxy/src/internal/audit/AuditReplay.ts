/**
 * Replays the entries of an audit, to find out what its run has used. Pure.
 *
 * A call is recorded before it begins, so all open calls are known. They are charged as reserved.
 */
import * as Struct from "effect/Struct"
import type { Exhaustion, LlmCall, LlmOutcome, LlmUsageTotal } from "@cogni/sandbox-core/RunFigures"
import type { AuditLine } from "../../AuditEntry.ts"
import type { Prices } from "../../Prices.ts"
import * as CallAnswer from "../gateway/CallAnswer.ts"
import * as RequestRefused from "../gateway/RequestRefused.ts"
import * as TrafficCount from "../gateway/TrafficCount.ts"
import * as Budget from "../policy/Budget.ts"
import * as AuditChain from "./AuditChain.ts"

export type Line<Type extends AuditLine["type"]> = Extract<AuditLine, { readonly type: Type }>

/** The end of a call that its run could not end. */
type OpenEnd = ReturnType<typeof endOf> & Pick<Line<"call.ended">, "usage">

/** Replays all entries on a ledger without limits, because the calls were already allowed. */
export const make = (prices: Prices | undefined) => {
  const ledger = Budget.make(undefined, {
    prices,
    defaults: { concurrentCallsMax: Number.POSITIVE_INFINITY, requestsPerSecondMax: 1 }
  })
  const open = new Map<string, { readonly line: Line<"call.started">; readonly ticket: Budget.Ticket }>()
  const traffic = TrafficCount.make()
  let opened: Line<"run.opened"> | undefined
  let exhausted: Exhaustion | undefined
  let subagentsExhausted: Exhaustion | undefined
  /** The last entry, if the run itself closed its audit. */
  let closed: Line<"run.closed"> | undefined

  const addListed = (line: Line<"request.refused" | "request.answered">, outcome: LlmOutcome) => {
    const { at, call, method = "", path: target = "", requestId = "", status } = line
    if (call === undefined) return
    traffic.call({ at, requestId, method, path: target, status, ...call, completed: true, outcome })
  }

  const take = (line: AuditLine): void => {
    switch (line.type) {
      case "run.opened":
        opened = line
        return
      case "call.started": {
        const ticket = ledger.begin({
          model: line.model,
          requestBytes: line.sentBytes,
          inputTokensMax: line.inputTokensMax ?? line.sentBytes,
          cachesForHour: line.cachesForHour,
          outputTokensMax: line.outputTokensMax,
          free: line.api === "count_tokens"
        })
        if (!("exhaustion" in ticket)) open.set(line.callId, { line, ticket })
        return
      }
      case "call.ended": {
        const began = open.get(line.callId)
        if (began === undefined) return
        open.delete(line.callId)
        ledger.end(began.ticket, {
          // Estimated figures are estimated again. Reported figures are kept.
          usage: line.usage && Budget.toldOf(began.ticket, line.usage, prices),
          responseBytes: line.responseBytes,
          // A call that was charged for its model has both figures. A cost alone is that of a refusal.
          mayHaveRun: line.usage?.outputTokens !== undefined
        })
        return traffic.call(callOf(began.line, line))
      }
      case "request.refused":
        traffic.add({ refusedTotal: 1 + (line.suppressed ?? 0), callsTotal: line.suppressedCalls ?? 0 })
        return addListed(line, RequestRefused.outcomeOf(line.code))
      case "request.answered":
        return addListed(line, "answered")
      case "tool.called":
        return traffic.add({ toolCallsTotal: 1 })
      case "package.ended":
        return traffic.add({ packagesTotal: 1 })
      case "subagents.exhausted":
        subagentsExhausted ??= line.exhaustion
        return
      case "budget.exhausted":
        exhausted ??= line.exhaustion
        return
      case "run.closed":
        closed = line
    }
  }

  /** Ends the open calls at this time, charged as reserved. Returns their ends, in the order of their beginnings. */
  const endOpen = (nowMillis: number, detail: string): ReadonlyArray<OpenEnd> => {
    const begun = new Map([...open.values()].map(({ line, ticket }) => [ticket, line]))
    open.clear()
    return ledger.endAll().flatMap(({ ticket, usage }) => {
      const line = begun.get(ticket)
      if (line === undefined) return []
      const end = { ...endOf(line, nowMillis, detail), ...(usage === undefined ? {} : { usage }) }
      traffic.call(callOf(line, end))
      return [end]
    })
  }

  return {
    take,
    endOpen,
    opened: () => opened,
    closed: () => closed,
    /** Spent budgets, in the form of the traffic of a run. */
    spent: () => ({
      ...(exhausted === undefined ? {} : { exhausted }),
      ...(subagentsExhausted === undefined ? {} : { subagentsExhausted })
    }),
    traffic: traffic.read,
    usage: (): LlmUsageTotal => closed?.usage ?? ledger.total()
  }
}

const endOf = ({ api, at, callId, requestId }: Line<"call.started">, nowMillis: number, detail: string) =>
  ({
    requestId,
    callId,
    status: CallAnswer.statusGone,
    outcome: "run_ended",
    responseBytes: 0,
    responseDigest: AuditChain.sha256(""),
    durationMs: Math.max(0, nowMillis - Date.parse(at)),
    ...(api === "count_tokens" ? {} : { usageMissing: true as const }),
    detail
  }) as const

const callOf = (
  line: Line<"call.started">,
  end: Pick<
    Line<"call.ended">,
    "status" | "outcome" | "responseBytes" | "durationMs" | "gatewayMs" | "upstreamCallId" | "usage"
  >
): LlmCall => ({
  ...Struct.pick(line, ["at", "requestId", "callId", "method", "path", "model", "requestBytes"]),
  ...Struct.pick(end, [
    "status",
    "outcome",
    "responseBytes",
    "durationMs",
    "gatewayMs",
    "upstreamCallId",
    "usage"
  ]),
  completed: end.outcome === "completed"
})
