/**
 * Refuses a second host of the same name: both would poll one queue, and take each other's runs.
 *
 * Temporal tells who has polled a queue of late. The identity of a worker has the ID of its host, so that a second
 * worker of the same host is welcome.
 */
import { Effect, Schedule } from "effect"
import { TemporalFailed } from "../TemporalServer.ts"

/** A poller as Temporal tells it. */
interface Poller {
  readonly identity: string
  readonly seenMillis: number
}

/** A poll lasts for a minute, so a living worker was seen since. */
export const livingMillis = 70_000

/** Identity of a worker, as Temporal shows it. */
export const identityOf = (host: string, hostId: string | undefined, processId: number): string =>
  hostId === undefined ? `${host}#${processId}` : `${host}#${processId}#${hostId}`

/**
 * Returns the ID of a host that polls the queue of the same name now, and is not that of this worker.
 *
 * The times are those of Temporal's clock. Once this worker polls, its own time there stands for now. Before that,
 * `nowMillis` does, which is that of another clock: a host that this misses is seen by the next look.
 */
export const otherHost = (
  pollers: ReadonlyArray<Poller>,
  own: string,
  nowMillis: number
): string | undefined => {
  const now = pollers.find(({ identity }) => identity === own)?.seenMillis ?? nowMillis
  return pollers
    .filter(({ seenMillis }) => now - seenMillis < livingMillis)
    .map(({ identity }) => hostIdOf(identity))
    .find((other) => other !== undefined && other !== hostIdOf(own))
}

const hostIdOf = (identity: string): string | undefined => identity.split("#")[2]

export const inUse = (host: string, other: string): TemporalFailed =>
  new TemporalFailed({
    reason: "HostNameInUse",
    detail: `another host takes runs as ${host} (its ID is ${other}), and the two would take each other's runs`,
    remedy:
      "Choose another --name for one of them. If that host was replaced by this one, try again in two minutes. If its " +
      "state directory was copied, remove the file host-id from the copy"
  })

/** Interval in which the keeper and the name of the host are asked about again. */
export const factSeconds = 30

/** Fails when the name is found to be in use. A Temporal server that is down for a while ends no worker. */
export const watched = (check: Effect.Effect<void, TemporalFailed>): Effect.Effect<never, TemporalFailed> =>
  check.pipe(
    Effect.catchIf(
      ({ reason }) => reason !== "HostNameInUse",
      ({ message }) => Effect.logDebug(message)
    ),
    Effect.schedule(Schedule.spaced(`${factSeconds} seconds`)),
    Effect.andThen(Effect.never)
  )
