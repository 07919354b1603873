/** Collects what a run used from the bytes of its audit. Trusts no entry that does not follow from the chain. Pure. */
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import * as AuditLog from "../../AuditLog.ts"
import type { Prices } from "../../Prices.ts"
import * as AuditReplay from "./AuditReplay.ts"

/** Collects the traffic of a run from the bytes of its audit, split at any point. */
export const make = (
  runId: string,
  prices?: Prices
): { readonly push: (bytes: Uint8Array) => void; readonly end: () => LlmTraffic } => {
  const replay = AuditReplay.make(prices)
  let lastMillis = 0
  const verifier = AuditLog.makeVerifier({ runId, ended: false }, ({ line, sound }) => {
    if (!sound || line === undefined) return
    const millis = Date.parse(line.at)
    if (millis > lastMillis) lastMillis = millis
    replay.take(line)
  })
  return {
    push: verifier.push,
    end: () => {
      const verdict = verifier.end()
      const opened = replay.opened()
      if (replay.closed() === undefined) replay.endOpen(lastMillis, "")
      const { calls, callsTotal, packagesTotal, toolCallsTotal } = replay.traffic()
      const isBroken = verdict._tag === "Broken"
      return {
        proxy: opened === undefined ? "gateway" : `${opened.proxy} (${opened.carrier})`,
        upstream: opened?.upstream ?? "unknown",
        calls,
        // The entries after a break stand for calls whose number and usage are unknown.
        callsTotal: callsTotal + (isBroken ? 1 : 0),
        unreadableRows: isBroken ? 1 : 0,
        injectedHeaders: [],
        auditHead: isBroken ? verdict.sound : verdict.head,
        ...(isBroken ? {} : { usage: replay.usage() }),
        ...replay.spent(),
        ...(opened === undefined || opened.tools.length === 0 ? {} : { toolCallsTotal }),
        ...(opened?.packages === undefined ? {} : { packagesTotal: packagesTotal ?? 0 })
      }
    }
  }
}
