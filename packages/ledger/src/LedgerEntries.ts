/**
 * Makes the entries of a run from what its audit says. Pure, and the same for a run that ended well and for one whose
 * process died: the same audit always makes the same entries.
 */
import type { AuditedCall, AuditedCalls } from "@cogni/sandbox-core/AuditedCall"
import {
  hasReachedUpstream,
  type LlmCall,
  type LlmTraffic,
  type LlmUsage
} from "@cogni/sandbox-core/RunFigures"
import * as Struct from "effect/Struct"
import { type LedgerEntry } from "./LedgerEntry.ts"
import { key } from "./EntryKey.ts"
import { reasons, unknownUnitId } from "./EntryFields.ts"
import type { LedgerRun } from "./LedgerRun.ts"

type Facts = Pick<LedgerEntry, "priceSource" | "state"> &
  Partial<Pick<LedgerEntry, "costUsd" | "detail" | "reason">>

const unknown = (reason: string, detail: string): Facts => ({
  priceSource: "none",
  state: "pending",
  reason,
  detail
})

const detailOf = {
  callOpen: "the audit has no end of this call, so it is charged as reserved",
  usageMissing: "the upstream did not report all tokens, so the missing ones are charged as reserved",
  noPrice: "the upstream reported no cost, and the host has no price for the model",
  notRun: "no model ran, so nothing is charged",
  noModel: "the request asks for no model, so nothing is charged",
  notTold: "the proxy does not read answers, so tokens and cost are unknown",
  auditBroken:
    "a part of the audit was changed, so the number and the cost of the calls after it are unknown",
  auditMissing: "there is no audit of this run, so the number and the cost of its calls are unknown",
  notListed: "the proxy lists only the first calls, so the cost of the others is unknown"
}

/** Decides what a call is charged, and why. */
const factsOf = ({
  isFree,
  outcome,
  runsNoModel,
  usage
}: Pick<AuditedCall, "isFree" | "outcome" | "runsNoModel" | "usage">): Facts => {
  const costUsd = usage?.costUsd
  const why = runsNoModel === true ? "noModel" : "notRun"
  if (isFree === true)
    return costUsd === undefined || costUsd === 0
      ? {
          priceSource: "free",
          costUsd: 0,
          state: "pending",
          reason: reasons[why],
          detail: detailOf[why]
        }
      : { ...priced(usage), state: "pending" }
  if (usage === undefined) return unknown(reasons.notTold, detailOf.notTold)
  if (usage.estimated === true || outcome === undefined) {
    const isOpen = outcome === undefined
    return {
      ...priced(usage),
      state: "estimated",
      reason: isOpen ? reasons.callOpen : reasons.usageMissing,
      detail: isOpen ? detailOf.callOpen : detailOf.usageMissing
    }
  }
  return costUsd === undefined
    ? unknown(reasons.noPrice, detailOf.noPrice)
    : { ...priced(usage), state: "pending" }
}

const priced = (usage: LlmUsage | undefined): Pick<LedgerEntry, "costUsd" | "priceSource"> =>
  usage?.costUsd === undefined
    ? { priceSource: "none" }
    : { costUsd: usage.costUsd, priceSource: usage.priceSource ?? "upstream" }

const ownerOf = (run: LedgerRun) =>
  Struct.pick(run, [
    "runId",
    "attempt",
    "billingAccountId",
    "userId",
    "graphId",
    "agentId",
    "virtualKeyId",
    "upstream"
  ])

const tokenNames = [
  "inputTokens",
  "outputTokens",
  "cacheReadTokens",
  "cacheWriteTokens",
  "cacheWrite1hTokens"
] as const

/** First moment after the last year that an entry can name. */
const endMillis = Date.parse("9999-12-31T23:59:59.999Z") + 1

/** The time of a call. One that no entry can have, such as that of a broken clock, becomes the opening of its run. */
const instantOf = (at: string, { openedAt }: LedgerRun): string => {
  const millis = Date.parse(at)
  return millis >= 0 && millis < endMillis ? new Date(millis).toISOString() : openedAt
}

const entryOf = (
  run: LedgerRun,
  call: AuditedCall,
  recordedAt: string,
  runKeyHash?: string | undefined
): LedgerEntry => ({
  ...ownerOf(run),
  ...(runKeyHash === undefined ? {} : { runKeyHash }),
  usageUnitId: call.callId,
  ...(call.upstreamCallId === undefined ? {} : { upstreamCallId: call.upstreamCallId }),
  revision: 0,
  at: instantOf(call.at, run),
  recordedAt,
  model: call.model,
  ...(call.isFree === true ? {} : Struct.pick(call.usage ?? {}, tokenNames)),
  ...factsOf(call),
  currency: "USD",
  ...(call.reservedUsd === undefined ? {} : { reservedUsd: call.reservedUsd }),
  streamed: call.stream,
  ...(call.outcome === undefined ? {} : { outcome: call.outcome })
})

/** An entry for calls whose number is unknown, so that no sum hides them. */
const unknownEntry = (
  run: LedgerRun,
  recordedAt: string,
  name: "auditBroken" | "auditMissing" | "notListed",
  runKeyHash?: string | undefined
): LedgerEntry => ({
  ...ownerOf(run),
  ...(runKeyHash === undefined ? {} : { runKeyHash }),
  usageUnitId: unknownUnitId,
  revision: 0,
  at: run.openedAt,
  recordedAt,
  model: run.model,
  ...unknown(reasons[name], detailOf[name]),
  currency: "USD",
  streamed: false
})

/** Returns the entries of the calls in an audit. */
export const ofAudit = (
  run: LedgerRun,
  { calls, isGone, isWhole, runKeyHash }: AuditedCalls,
  recordedAt: string
): ReadonlyArray<LedgerEntry> => [
  ...calls.map((call) => entryOf(run, call, recordedAt, runKeyHash)),
  ...(isWhole
    ? []
    : [unknownEntry(run, recordedAt, isGone === true ? "auditMissing" : "auditBroken", runKeyHash)])
]

/** Whether a request lists models or counts tokens. Its upstream bills nothing and writes no row. */
const asksForNoModel = ({ method, path }: Pick<LlmCall, "method" | "path">): boolean =>
  method === "GET" || /\/count_tokens(?:\?|$)/u.test(path)

/** Returns the entries of a run whose proxy writes no audit of its calls, from what it reported at the end. */
export const ofTraffic = (
  run: LedgerRun,
  {
    calls,
    callsTotal,
    unreadableRows,
    usage
  }: Pick<LlmTraffic, "calls" | "callsTotal" | "unreadableRows" | "usage">,
  recordedAt: string
): ReadonlyArray<LedgerEntry> => {
  const taken = new Set([unknownUnitId])
  const unitOf = (wanted: ReadonlyArray<string | undefined>, index: number): string => {
    const unit = [...wanted, `call-${index}`].find(
      (name): name is string => name !== undefined && name !== "" && name.length <= 200 && !taken.has(name)
    )
    taken.add(unit ?? `call-${index}-again`)
    return unit ?? `call-${index}-again`
  }
  const listed = calls.filter(hasReachedUpstream).map((call, index) =>
    entryOf(
      run,
      {
        callId: unitOf([call.callId, call.requestId], index),
        upstreamCallId: call.upstreamCallId,
        at: call.at,
        model: call.model ?? run.model,
        stream: false,
        outcome: call.outcome ?? (call.completed ? "completed" : "upstream_cut"),
        usage: call.usage,
        // A proxy that reads answers charges every call that may have run a model.
        ...(asksForNoModel(call) || (usage !== undefined && call.usage?.outputTokens === undefined)
          ? { isFree: true }
          : {}),
        ...(asksForNoModel(call) ? { runsNoModel: true } : {})
      },
      recordedAt
    )
  )
  return callsTotal > calls.length || unreadableRows > 0
    ? [...listed, unknownEntry(run, recordedAt, "notListed")]
    : listed
}

/** Returns the entry of a run without an audit that died before its proxy could report. */
export const ofNothing = (run: LedgerRun, recordedAt: string): ReadonlyArray<LedgerEntry> => [
  unknownEntry(run, recordedAt, "auditMissing")
]

/**
 * Returns the corrections that complete a ledger: the ends of calls that were open when they were recorded. Knowledge
 * only grows, so whatever the order in which two readers of one audit come, the later end stays.
 */
export const corrections = (
  found: ReadonlyArray<LedgerEntry>,
  made: ReadonlyArray<LedgerEntry>
): ReadonlyArray<LedgerEntry> => {
  const newest = new Map<string, LedgerEntry>()
  for (const entry of found) {
    const other = newest.get(key(entry))
    if (other === undefined || other.revision < entry.revision) newest.set(key(entry), entry)
  }
  return made.flatMap((entry) => {
    const stored = newest.get(key(entry))
    return stored !== undefined &&
      stored.reason === reasons.callOpen &&
      stored.state === "estimated" &&
      entry.reason !== reasons.callOpen
      ? [{ ...entry, revision: stored.revision + 1 }]
      : []
  })
}
