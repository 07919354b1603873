/**
 * What has gone through a run's socket, as its record has it: all of it counted, the first calls one by one.
 *
 * Plain numbers and no `Ref`: one thread changes them, within a turn, and a flood of refused requests counts by them.
 */
import type { LlmCall } from "@cogni/sandbox-core/RunResult"

/** More calls than these are counted, and are to be read in the audit. */
export const callsKeptMax = 1000

export interface Traffic {
  readonly calls: ReadonlyArray<LlmCall>
  readonly callsTotal: number
  readonly refusedTotal: number
  readonly toolCallsTotal: number
}

export interface TrafficCount {
  readonly call: (call: LlmCall) => void
  /** Count what is not listed. */
  readonly add: (more: Partial<Omit<Traffic, "calls">>) => void
  readonly read: () => Traffic
}

export const make = (): TrafficCount => {
  const calls: Array<LlmCall> = []
  const totals = { callsTotal: 0, refusedTotal: 0, toolCallsTotal: 0 }
  return {
    call: (call) => {
      totals.callsTotal += 1
      if (calls.length < callsKeptMax) calls.push(call)
    },
    add: ({ callsTotal = 0, refusedTotal = 0, toolCallsTotal = 0 }) => {
      totals.callsTotal += callsTotal
      totals.refusedTotal += refusedTotal
      totals.toolCallsTotal += toolCallsTotal
    },
    read: () => ({ ...totals, calls: [...calls] })
  }
}
