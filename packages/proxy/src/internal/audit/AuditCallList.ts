/** Collects the calls of a run from the bytes of its audit. Trusts no entry that does not follow from the chain. Pure. */
import type { AuditedCall, AuditedCalls } from "@cogni/sandbox-core/AuditedCall"
import * as AuditLog from "../../AuditLog.ts"
import * as Struct from "effect/Struct"
import type { Prices } from "../../Prices.ts"
import * as AuditReplay from "./AuditReplay.ts"

/** Collects the calls of a run from the bytes of its audit, split at any point. */
export const make = (
  runId: string,
  prices?: Prices
): { readonly push: (bytes: Uint8Array) => void; readonly end: () => AuditedCalls } => {
  const replay = AuditReplay.make(prices)
  // Only what is needed: a line may hold the body of its call.
  const started = new Map<string, Started>()
  const ended = new Map<string, Ended>()
  let runKeyHash: string | undefined
  const verifier = AuditLog.makeVerifier({ runId, ended: false }, ({ line, sound }) => {
    if (!sound || line === undefined) return
    if (line.type === "run.keyed") runKeyHash = line.keyHash
    if (line.type === "call.started") started.set(line.callId, startedOf(line))
    if (line.type === "call.ended") ended.set(line.callId, endedOf(line))
    replay.take(line)
  })
  return {
    push: verifier.push,
    end: () => {
      const isWhole = verifier.end()._tag === "Whole"
      const reserved = new Map(replay.endOpen(0, "").map(({ callId, usage }) => [callId, usage]))
      return {
        calls: [...started.values()].map((line) =>
          callOf(line, ended.get(line.callId), reserved.get(line.callId))
        ),
        isWhole,
        ...(runKeyHash === undefined ? {} : { runKeyHash })
      }
    }
  }
}

const startedOf = (line: AuditReplay.Line<"call.started">) =>
  Struct.pick(line, ["api", "at", "callId", "costUsdMax", "model", "stream"])

type Started = ReturnType<typeof startedOf>

const endedOf = (line: AuditReplay.Line<"call.ended">) =>
  Struct.pick(line, ["outcome", "upstreamCallId", "usage"])

type Ended = ReturnType<typeof endedOf>

const callOf = (
  { api, at, callId, costUsdMax, model, stream }: Started,
  ended: Ended | undefined,
  reserved: AuditedCall["usage"]
): AuditedCall => {
  const usage = ended === undefined ? atReservation(reserved, costUsdMax) : ended.usage
  // A call that may have run a model has tokens: those that were reported, or those that were reserved.
  const hasTokens = usage?.inputTokens !== undefined || usage?.outputTokens !== undefined
  return {
    callId,
    at,
    model,
    stream,
    ...(ended?.upstreamCallId === undefined ? {} : { upstreamCallId: ended.upstreamCallId }),
    ...(ended === undefined ? {} : { outcome: ended.outcome }),
    ...(usage === undefined ? {} : { usage }),
    ...(costUsdMax === undefined ? {} : { reservedUsd: costUsdMax }),
    ...(api === "count_tokens" || (ended !== undefined && !hasTokens) ? { isFree: true } : {}),
    ...(api === "count_tokens" ? { runsNoModel: true } : {})
  }
}

/** Charges an open call what its audit says that was reserved, whatever the prices are now. */
const atReservation = (usage: AuditedCall["usage"], costUsdMax: number | undefined): AuditedCall["usage"] =>
  usage === undefined || costUsdMax === undefined
    ? usage
    : { ...usage, costUsd: costUsdMax, priceSource: "reservation" }
