/** Limits and timeouts of a server, each with its unit in the name. */
import { Effect, Schema } from "effect"

const bounded = (minimum: number, maximum: number, fallback: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum })).pipe(
    Schema.withDecodingDefaultKey(Effect.succeed(fallback))
  )

const positive = (maximum: number, fallback: number) => bounded(1, maximum, fallback)

const day = 86_400

export const ServerLimits = Schema.Struct({
  /** Maximum size of a request's body (default 12 MiB). A larger body is answered with 413. */
  bodyBytesMax: positive(2 ** 30, 12 * 1024 * 1024),
  /** Requests of any kind per grant and minute (default 6000). More are answered with 429. */
  requestsPerMinutePerGrantMax: positive(10_000_000, 6000),
  /** Requests without a known token, per bucket of addresses and minute (default 600). More are answered with 429. */
  unknownRequestsPerMinuteMax: positive(10_000_000, 600),
  /** Concurrent requests of an account, with those whose answer is not read yet (default 300). More: 429. */
  requestsPerAccountMax: positive(100_000, 300),
  /** Size of the large answers of an account that are not read yet (default 64 MiB). More are answered with 503. */
  unreadBytesPerAccountMax: positive(2 ** 40, 64 * 1024 * 1024),
  /** Size of the large answers of all accounts that are not read yet (default 256 MiB). More are answered with 503. */
  unreadBytesMax: positive(2 ** 40, 256 * 1024 * 1024),
  /** Runs that a grant may start per minute (default 60). More are answered with 429. */
  runsPerMinutePerGrantMax: positive(1_000_000, 60),
  /** Changes of the configuration that a grant may propose per minute (default 10). More are answered with 429. */
  proposalsPerMinutePerGrantMax: positive(10_000, 10),
  /** Concurrent runs allowed per grant (default 8). One more is answered with 429. */
  runsPerGrantMax: positive(10_000, 8),
  /** Concurrent runs, and thus event streams, of the server (default 32). One more is answered with 503. */
  runsMax: positive(10_000, 32),
  /** Concurrent connections (default 512). The caller configures the platform's server with it. */
  connectionsMax: positive(100_000, 512),
  /** Timeout of a request's headers (default 15). The caller configures the platform's server with it. */
  headersSecondsMax: positive(day, 15),
  /** Timeout of a whole request (default 60). The caller configures the platform's server with it. */
  requestSecondsMax: positive(day, 60),
  /** Time after which an answer that is not read is closed (default 60); that of a chat ends its run. */
  streamIdleSecondsMax: positive(day, 60),
  /** Interval of comments in an event stream (default 15). */
  heartbeatSeconds: positive(day, 15),
  /** Concurrent readers of events and recordings of runs (default 400). One more is answered with 503. */
  readersMax: positive(100_000, 400),
  /** Concurrent readers of one grant of events and recordings (default 250). One more is answered with 503. */
  readersPerGrantMax: positive(100_000, 250),
  /** Time after which a reader that follows a run must reconnect (default 600), so that its grant is checked again. */
  followSecondsMax: positive(day, 600),
  /** Time after which a sign-in of a browser ends (default 43200). Not longer than the grant is valid. */
  signInSecondsMax: positive(30 * day, 12 * 3600),
  /** Time from shutdown until remaining runs are cancelled (default 30). */
  drainSecondsMax: bounded(0, day, 30),
  /** Time that a shutdown then waits for the cancelled runs (default 60). */
  cancelSecondsMax: positive(day, 60)
})

export type ServerLimits = typeof ServerLimits.Type

/** Adds the defaults of omitted limits. Throws if a limit is invalid. */
export const make = (limits: Partial<ServerLimits> = {}): ServerLimits =>
  Schema.decodeSync(ServerLimits)(limits)

export const defaults: ServerLimits = make()
