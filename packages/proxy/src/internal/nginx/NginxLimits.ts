/** The numbers that an operator can set for an nginx, for one run or for many, and the values that they may have. */
import * as LimitRange from "../LimitRange.ts"
import * as NginxConfig from "./NginxConfig.ts"
import * as SharedNginxConfig from "./SharedNginxConfig.ts"

const MiB = 1024 * 1024

/** The kernel's cap on one file of the container. nginx dies when a log reaches it. */
export const fileBytesMax = 256 * MiB

/** Size of a log at which its run ends. Leaves room below the cap for requests that are logged until then. */
export const auditBytesMax = fileBytesMax - 32 * MiB

export const defaults = { readySecondsMax: 60, socketsMax: 1000 } as const

/** Each socket counts as two connections. So half of them are left to runs. */
const socketsMax = SharedNginxConfig.connectionsMax / 4

/** More would overflow the counters of nginx, which counts thousandths of a request. */
const requestsPerSecondMax = 1_000_000

/** Ranges of both. To nginx, a size of 0 is no limit. */
const ofBoth = {
  // nginx reads whole numbers only.
  requestBytesMax: LimitRange.whole(1, LimitRange.most, "bytes"),
  requestsPerSecondMax: LimitRange.whole(1, requestsPerSecondMax, "requests per second"),
  readySecondsMax: LimitRange.seconds,
  auditBytesMax: LimitRange.whole(1, auditBytesMax, "bytes")
} as const

/** A call is a connection to nginx and one from it. */
export const ofOne = {
  ...ofBoth,
  concurrentRequestsMax: LimitRange.whole(1, Math.floor((NginxConfig.connectionsMax - 24) / 2), "requests")
} as const

/** A call is a connection to a run's socket, which counts as three, and one to the relay. Sockets take the other half. */
export const ofMany = {
  ...ofBoth,
  concurrentRequestsMax: LimitRange.whole(1, SharedNginxConfig.connectionsMax / 8, "requests"),
  socketsMax: LimitRange.whole(1, socketsMax, "sockets")
} as const
