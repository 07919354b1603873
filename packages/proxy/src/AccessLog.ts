/**
 * What nginx wrote down about a run's calls, read back.
 *
 * Pure and lenient: a client's bytes may have made a line invalid UTF-8, and the last line may be half-written. A line
 * that cannot be read is counted and never fatal.
 */
import { Option, Schema } from "effect"
import type { LlmCall } from "@cogni/sandbox-core/RunResult"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

const Seconds = Schema.FiniteFromString.check(Schema.isGreaterThanOrEqualTo(0))
const Count = Schema.FiniteFromString.pipe(Schema.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(0)))

/** One line, as `NginxConfig` lays it out: all values are text. @category models */
export const AccessLogLine = Schema.Struct({
  at: Seconds,
  requestId: Schema.String,
  method: Schema.String,
  target: Schema.String,
  status: Count,
  /** Empty when the request never left the proxy. */
  upstreamStatus: Schema.String,
  upstreamCallId: Schema.String,
  upstreamCost: Schema.String,
  requestBytes: Count,
  responseBytes: Count,
  seconds: Seconds,
  firstByteSeconds: Schema.String,
  /** `OK` when nginx sent all that it had. */
  completion: Schema.String,
  /** Serial number of the client's connection. */
  connection: Schema.String
})

/** @category models */
export type AccessLogLine = typeof AccessLogLine.Type

/** @category models */
export interface AccessLog {
  readonly lines: ReadonlyArray<AccessLogLine>
  /** How many lines could not be read. */
  readonly unreadable: number
}

// -----------------------------------------------------------------------------
// converting
// -----------------------------------------------------------------------------

const decodeLine = Schema.decodeUnknownOption(Schema.fromJsonString(AccessLogLine))

/**
 * Read an access log, and beside it the error log of the same nginx.
 *
 * **Gotchas** nginx calls a request complete when its upstream broke off in the middle of the answer: it sent all it
 * had. Only the error log tells. Such a break ends the client's connection too, so it was the last request on it.
 *
 * @category converting
 */
export const parse = (access: Uint8Array, errors: Uint8Array = new Uint8Array()): AccessLog => {
  const texts = new TextDecoder().decode(access).split("\n")
  // Behind the last line break there is nothing, or a line that is still being written.
  const rest = texts.pop()!
  const decoded = texts.filter((text) => text !== "").map((text) => decodeLine(text))
  const lines = [...decoded, decodeLine(rest)].flatMap((line) => (Option.isSome(line) ? [line.value] : []))
  const broken = brokenConnections(errors)
  const last = new Map(lines.map((line, index) => [line.connection, index]))
  return {
    lines: lines.map((line, index) =>
      broken.has(line.connection) && last.get(line.connection) === index ? { ...line, completion: "" } : line
    ),
    unreadable: decoded.filter(Option.isNone).length
  }
}

const brokenConnections = (errors: Uint8Array): ReadonlySet<string> =>
  new Set(
    Array.from(
      new TextDecoder()
        .decode(errors)
        .matchAll(/^\S+ \S+ \[error\] \d+#\d+: \*(\d+) .{1,200} while reading upstream,/gmu),
      (match) => match[1]!
    )
  )

/** @category converting */
export const toLlmCall = (line: AccessLogLine): LlmCall => ({
  at: new Date(Math.min(line.at * 1000, 8.64e15)).toISOString(),
  requestId: line.requestId,
  method: line.method,
  path: line.target,
  status: line.status,
  ...(line.upstreamCallId === "" ? {} : { callId: line.upstreamCallId }),
  requestBytes: line.requestBytes,
  responseBytes: line.responseBytes,
  durationMs: Math.round(line.seconds * 1000),
  completed: line.completion === "OK"
})

/** How many of the requests were passed on. @category combinators */
export const passedOn = (log: AccessLog): number =>
  log.lines.filter(({ upstreamStatus }) => upstreamStatus !== "").length
