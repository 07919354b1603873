/** Limits of a gateway and of each of its runs. */
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
