/**
 * What nginx wrote down about a run's calls, read back piece by piece.
 *
 * Lenient: a client's bytes may have made a row invalid UTF-8, and the last row may be half-written. A row that cannot
 * be read is counted and never fatal. However long the log is, what is remembered of it is bounded, and no byte is
 * looked at twice.
 */
import { Option, Schema } from "effect"
import type { LlmCall } from "@cogni/sandbox-core/RunResult"
import { makeRows } from "../ByteRows.ts"

const Seconds = Schema.FiniteFromString.check(Schema.isGreaterThanOrEqualTo(0))
const Count = Schema.FiniteFromString.pipe(Schema.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(0)))

/** One line, as `NginxConfig` lays it out: all values are text. */
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

export type AccessLogLine = typeof AccessLogLine.Type

/** What a log says so far. */
export interface AccessLog {
  /** The first `callsKeptMax` calls. */
  readonly calls: ReadonlyArray<LlmCall>
  /** Rows in all, readable or not. */
  readonly callsTotal: number
  readonly unreadableRows: number
  /** How many of the readable requests were passed on. */
  readonly passedOn: number
}

/** Reads an access log, and beside it the error log of the same nginx. */
export interface Reader {
  readonly addAccess: (bytes: Uint8Array) => void
  readonly addErrors: (bytes: Uint8Array) => void
  readonly read: () => AccessLog
}

/** More calls than these are counted, and are to be read in the log itself. */
export const callsKeptMax = 1000

/** nginx bounds all that it writes in a row; what is longer is none of its rows. */
export const rowBytesMax = 64 * 1024

/**
 * **Gotchas** nginx calls a request complete when its upstream broke off in the middle of the answer: it sent all it
 * had. Only the error log tells. Such a break ends the client's connection too, so it was the last request on it.
 */
export const makeReader = (): Reader => {
  const calls: Array<LlmCall> = []
  /** Where the last request of a connection is in `calls`, as far as it was kept. */
  const lastOf = new Map<string, number>()
  const broken = new Set<string>()
  let callsTotal = 0
  let unreadableRows = 0
  let passedOn = 0

  const addAccess = readRows((row) => {
    if (row === "") return
    callsTotal += 1
    const decoded = row === undefined ? Option.none() : decodeLine(row)
    if (Option.isNone(decoded)) {
      unreadableRows += 1
      return
    }
    const line = decoded.value
    if (line.upstreamStatus !== "") passedOn += 1
    if (calls.length < callsKeptMax) {
      lastOf.set(line.connection, calls.length)
      calls.push(toLlmCall(line))
    } else {
      lastOf.delete(line.connection)
    }
  })

  const addErrors = readRows((row) => {
    const connection = row === undefined ? undefined : brokenConnection(row)
    if (connection !== undefined && (calls.length < callsKeptMax || lastOf.has(connection)))
      broken.add(connection)
  })

  return {
    addAccess,
    addErrors,
    read: () => {
      const cut = new Set([...broken].map((connection) => lastOf.get(connection)))
      return {
        calls: calls.map((call, index) => (cut.has(index) ? { ...call, completed: false } : call)),
        callsTotal,
        unreadableRows,
        passedOn
      }
    }
  }
}

export const toLlmCall = (line: AccessLogLine): LlmCall => ({
  // nginx says when it ended.
  at: new Date(Math.min(Math.max(0, line.at - line.seconds) * 1000, 8.64e15)).toISOString(),
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

const decodeLine = Schema.decodeUnknownOption(Schema.fromJsonString(AccessLogLine))

/** nginx reads on while it sends to a client that was behind, and says then that this is what it does. */
const brokenConnection = (row: string): string | undefined =>
  /^\S+ \S+ \[error\] \d+#\d+: \*(\d+) .{1,200} while (?:reading upstream|sending to client),/u.exec(row)?.[1]

/** Each row without its end; one that is too long is `undefined`. */
const readRows = (each: (row: string | undefined) => void): ((bytes: Uint8Array) => void) => {
  const decoder = new TextDecoder()
  return makeRows(rowBytesMax, ({ bytes }) => each(bytes === undefined ? undefined : decoder.decode(bytes)))
    .push
}
