/** Limits of a gateway and of each of its runs, and the values that they may have. */
import { limits } from "@cogni/sandbox-core/Approval"
import { above0, from, type LimitRange, most, seconds, timerSecondsMax, whole } from "../LimitRange.ts"
import { requestBytesMax } from "../policy/RoutePolicy.ts"

const MiB = 1024 * 1024

/** Values of gateway options that are not set. */
export const defaults = {
  requestBytesMax,
  concurrentCallsMax: 64,
  requestsPerSecondMax: 200,
  connectionsMax: 512,
  heldBytesMax: 512 * MiB,
  processorShareMax: 0.25,
  bodyProgressSecondsMax: 5,
  bodyBytesPerSecondMin: 4096,
  shardsMax: 16,
  shardHeapBytesMax: 256 * MiB,
  shardSilentSecondsMax: 10,
  // The answer of the largest default cap, 16,384 tokens, in events of 500 bytes.
  drainBytesMax: 8 * MiB,
  drainSecondsMax: 30,
  // A person who ends a run should not have to wait for it.
  endDrainSecondsMax: 1,
  auditBytesMax: 1024 * MiB,
  connectSecondsMax: 10,
  keySecondsMax: 60,
  keyWaitSecondsMax: 10,
  headerSecondsMax: 15,
  requestSecondsMax: 120
} as const

export type GatewayLimits = { readonly [Name in keyof typeof defaults]: number }

/** The end of a run waits for a proxy for 30 s. The rest of it must fit into that time too. */
const endDrainSecondsMax = 20

/** More requests per second than any machine serves. */
const rate = above0(1e9)

/** Node cannot start a thread with less. */
const heapBytesMin = 16 * MiB

/** The numbers that an operator can set. */
export const options = {
  approvalWaitSecondsMax: whole(1, limits.waitSecondsMax),
  requestBytesMax: whole(1),
  outputTokensPerCallMax: whole(1),
  concurrentCallsMax: whole(1),
  requestsPerSecondMax: rate,
  connectionsPerSecondMax: rate,
  connectionsMax: whole(1),
  connectionsTotalMax: whole(1),
  heldBytesMax: whole(1),
  processorShareMax: above0(1024),
  bodyProgressSecondsMax: seconds,
  bodyBytesPerSecondMin: from(0, most),
  shardsMax: whole(1, 1024),
  shardHeapBytesMax: whole(heapBytesMin),
  shardSilentSecondsMax: seconds,
  drainBytesMax: from(0, most),
  drainSecondsMax: from(0, timerSecondsMax),
  endDrainSecondsMax: from(0, endDrainSecondsMax),
  auditBytesMax: whole(1),
  connectSecondsMax: seconds,
  // 0: the key is asked for with every call.
  keySecondsMax: from(0, timerSecondsMax),
  keyWaitSecondsMax: seconds,
  headerSecondsMax: seconds,
  requestSecondsMax: seconds
} as const satisfies Readonly<Record<string, LimitRange>>
