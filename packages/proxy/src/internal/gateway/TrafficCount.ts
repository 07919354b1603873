/**
 * Traffic of a run's socket, as its record shows it: totals, and the first calls one by one.
 *
 * Plain numbers instead of a `Ref`, because one thread changes them within a turn, and a flood of refused requests must
 * be cheap to count.
 */
import type { LlmCall } from "@cogni/sandbox-core/RunFigures"

/** Calls that are kept. Later calls are only counted, and can be found in the audit. */
export const callsKeptMax = 1000

export interface Traffic {
  readonly calls: ReadonlyArray<LlmCall>
  readonly callsTotal: number
  readonly refusedTotal: number
  readonly toolCallsTotal: number
  /** Requests for packages; absent without one. */
  readonly packagesTotal?: number
}

export interface TrafficCount {
  readonly call: (call: LlmCall) => void
  /** Counts traffic that is not listed. */
  readonly add: (more: Partial<Omit<Traffic, "calls">>) => void
  readonly read: () => Traffic
}

export const make = (): TrafficCount => {
  const calls: Array<LlmCall> = []
  const totals = { callsTotal: 0, refusedTotal: 0, toolCallsTotal: 0 }
  let packages = 0
  return {
    call: (call) => {
      totals.callsTotal += 1
      if (calls.length < callsKeptMax) calls.push(call)
    },
    add: ({ callsTotal = 0, packagesTotal = 0, refusedTotal = 0, toolCallsTotal = 0 }) => {
      packages += packagesTotal
      totals.callsTotal += callsTotal
      totals.refusedTotal += refusedTotal
      totals.toolCallsTotal += toolCallsTotal
    },
    read: () => ({ ...totals, ...(packages === 0 ? {} : { packagesTotal: packages }), calls: [...calls] })
  }
}
