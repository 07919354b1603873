/**
 * How long a run waits before it is placed again, because its host was full after all. Pure.
 *
 * Each placement writes the request of the run to its history once more, and Temporal ends a run whose history is too
 * large. So the larger the request, the longer the pauses.
 */

/** A run whose host was full. */
export interface Full {
  /** Placements so far, from one. */
  readonly placements: number
  readonly requestBytes: number
  /** Time to find a host with room. */
  readonly placementSecondsMax: number
  /** Time since the first placement. */
  readonly passedSeconds: number
  readonly historyBytes: number
  readonly historyEvents: number
}

/** Longest of the pauses of a run with a small request and a short time of placement. */
const shortPauseSecondsMax = 30

const placementsMax = 1000

/** Size of the requests of all placements of a run. */
const requestsBytesMax = 24 * 1024 * 1024

/** Temporal ends a run at 50 MiB, or at 51,200 events. The steps after a placement need the rest. */
const historyBytesMax = 40 * 1024 * 1024
const historyEventsMax = 40_000

/** Returns the seconds until the next placement. `undefined`: no time, or no room in the history, is left. */
export const pauseSeconds = (full: Full): number | undefined => {
  const { historyBytes, historyEvents, passedSeconds, placementSecondsMax, placements, requestBytes } = full
  const leftSeconds = placementSecondsMax - passedSeconds
  if (leftSeconds <= 0) return undefined
  if (historyBytes + requestBytes > historyBytesMax || historyEvents > historyEventsMax) return undefined
  const affordable = Math.max(1, Math.min(placementsMax, Math.floor(requestsBytesMax / requestBytes)))
  const longest = Math.max(shortPauseSecondsMax, placementSecondsMax / affordable)
  return Math.min(leftSeconds, longest, 4 ** (placements - 1))
}
