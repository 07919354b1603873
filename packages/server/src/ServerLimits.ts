/** What a server gives to its callers, and how long it waits for them: a bound on everything, each with its unit. */
import { Effect, Schema } from "effect"

const bounded = (minimum: number, maximum: number, fallback: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum })).pipe(
    Schema.withDecodingDefaultKey(Effect.succeed(fallback))
  )

const positive = (maximum: number, fallback: number) => bounded(1, maximum, fallback)

const day = 86_400

export const ServerLimits = Schema.Struct({
  /** Of a request's body; more is answered with 413. */
  bodyBytesMax: positive(2 ** 30, 12 * 1024 * 1024),
  /** Requests of one grant, of any kind; more are answered with 429. */
  requestsPerMinutePerGrantMax: positive(10_000_000, 6000),
  /** Requests without a token that is known to be a grant's, from addresses like theirs; more are answered with 429. */
  unknownRequestsPerMinuteMax: positive(10_000_000, 600),
  /** Runs that one grant may begin. */
  runsPerMinutePerGrantMax: positive(1_000_000, 60),
  /** Runs of one grant under way at one time; one more is answered with 429. */
  runsPerGrantMax: positive(10_000, 8),
  /** Runs under way at one time, and so streams of events; one more is answered with 503. */
  runsMax: positive(10_000, 32),
  /** Connections at one time; whoever composes the server gives it to the platform's. */
  connectionsMax: positive(100_000, 512),
  /** From the first byte of a request to the last of its headers; for the platform's server. */
  headersSecondsMax: positive(day, 15),
  /** From the first byte of a request to its last; for the platform's server. */
  requestSecondsMax: positive(day, 60),
  /** A stream of events that takes nothing for this long is closed, and its run ended. */
  streamIdleSecondsMax: positive(day, 60),
  /** Between two comments in a stream that has no events. */
  heartbeatSeconds: positive(day, 15),
  /** How long a server that is told to stop lets its runs go on. */
  drainSecondsMax: bounded(0, day, 30),
  /** How long it waits after that for those it has cancelled. */
  cancelSecondsMax: positive(day, 60)
})

export type ServerLimits = typeof ServerLimits.Type

/** The default for what is not said; throws what is no limit. */
export const make = (limits: Partial<ServerLimits> = {}): ServerLimits =>
  Schema.decodeSync(ServerLimits)(limits)

export const defaults: ServerLimits = make()
