/** What a server gives to its callers, and how long it waits for them: a bound on everything, each with its unit. */
import { Schema } from "effect"

const positive = (maximum: number) => Schema.Int.check(Schema.isBetween({ minimum: 1, maximum }))

const day = 86_400

export const ServerLimits = Schema.Struct({
  /** Of a request's body; more is answered with 413. */
  bodyBytesMax: positive(2 ** 30),
  /** Requests of one grant, of any kind; more are answered with 429. */
  requestsPerMinutePerGrantMax: positive(10_000_000),
  /** Requests without a token that is known to be a grant's, from addresses like theirs; more are answered with 429. */
  unknownRequestsPerMinuteMax: positive(10_000_000),
  /** Runs that one grant may begin. */
  runsPerMinutePerGrantMax: positive(1_000_000),
  /** Runs of one grant under way at one time; one more is answered with 429. */
  runsPerGrantMax: positive(10_000),
  /** Runs under way at one time, and so streams of events; one more is answered with 503. */
  runsMax: positive(10_000),
  /** Connections at one time; whoever composes the server gives it to the platform's. */
  connectionsMax: positive(100_000),
  /** From the first byte of a request to the last of its headers; for the platform's server. */
  headersSecondsMax: positive(day),
  /** From the first byte of a request to its last; for the platform's server. */
  requestSecondsMax: positive(day),
  /** A stream of events that takes nothing for this long is closed, and its run ended. */
  streamIdleSecondsMax: positive(day),
  /** Between two comments in a stream that has no events. */
  heartbeatSeconds: positive(day),
  /** How long a server that is told to stop lets its runs go on. */
  drainSecondsMax: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: day })),
  /** How long it waits after that for those it has cancelled. */
  cancelSecondsMax: positive(day)
})

export type ServerLimits = typeof ServerLimits.Type

export const defaults: ServerLimits = {
  bodyBytesMax: 12 * 1024 * 1024,
  requestsPerMinutePerGrantMax: 6000,
  unknownRequestsPerMinuteMax: 600,
  runsPerMinutePerGrantMax: 60,
  runsPerGrantMax: 8,
  runsMax: 32,
  connectionsMax: 512,
  headersSecondsMax: 15,
  requestSecondsMax: 60,
  streamIdleSecondsMax: 60,
  heartbeatSeconds: 15,
  drainSecondsMax: 30,
  cancelSecondsMax: 60
}

/** The default for what is not said; throws what is no limit. */
export const make = (limits: Partial<ServerLimits> = {}): ServerLimits =>
  Schema.decodeSync(ServerLimits)({ ...defaults, ...limits })
