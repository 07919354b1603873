/**
 * Reads nginx's log of a run's calls, piece by piece.
 *
 * Lenient: a client's bytes can make a row invalid UTF-8, and the last row may be incomplete. An unreadable row is
 * counted and never fatal. Memory is bounded whatever the size of the log, and no byte is read twice.
 */
import { Option, Schema } from "effect"
import type { LlmCall, LlmOutcome } from "@cogni/sandbox-core/RunFigures"
import { makeRows } from "../ByteRows.ts"
import * as GenerationId from "../policy/GenerationId.ts"

const Seconds = Schema.FiniteFromString.check(Schema.isGreaterThanOrEqualTo(0))
const Count = Schema.FiniteFromString.pipe(Schema.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(0)))

/** One line in the format that `NginxConfig` sets. All values are strings. */
const AccessLogLine = Schema.Struct({
  at: Seconds,
  requestId: Schema.String,
  method: Schema.String,
  target: Schema.String,
  status: Count,
  /** Empty if the proxy did not pass the request on. */
  upstreamStatus: Schema.String,
  upstreamCallId: Schema.String,
  upstreamGenerationId: Schema.String,
  upstreamCost: Schema.String,
  requestBytes: Count,
  responseBytes: Count,
  seconds: Seconds,
  firstByteSeconds: Schema.String,
  /** `OK` if nginx sent everything that it had received. */
  completion: Schema.String,
  /** Serial number of the client's connection. */
  connection: Schema.String
})

type AccessLogLine = typeof AccessLogLine.Type

/** Contents of a log so far. */
export interface AccessLog {
  /** The first `callsKeptMax` calls. */
  readonly calls: ReadonlyArray<LlmCall>
  /** Number of rows, readable or not. */
  readonly callsTotal: number
  readonly unreadableRows: number
  /** Number of readable requests that were passed on. */
  readonly passedOn: number
}

/**
 * Adds the calls that an nginx which has ended passed on and never logged. `accepted` are the connections that it has
 * made: one for each call.
 */
export const withLost = (log: AccessLog, accepted: number): AccessLog => {
  const lost = Math.max(0, accepted - log.passedOn)
  return { ...log, callsTotal: log.callsTotal + lost, unreadableRows: log.unreadableRows + lost }
}

/** Reads an access log and the error log of the same nginx. */
export interface Reader {
  readonly addAccess: (bytes: Uint8Array) => void
  readonly addErrors: (bytes: Uint8Array) => void
  readonly read: () => AccessLog
}

/** Maximum number of calls that are kept. Further calls are only counted; the log itself has them. */
export const callsKeptMax = 1000

/** Maximum size of a row. nginx limits the fields of a row, so a longer row is not from nginx. */
export const rowBytesMax = 64 * 1024

/**
 * Creates a reader of both logs.
 *
 * **Gotchas** nginx logs a request as complete if its upstream broke off in the middle of the answer, because it sent
 * all that it had. Only the error log shows the break. It ends the client's connection too, so it belongs to the last
 * request on that connection.
 */
export const makeReader = (): Reader => {
  const calls: Array<LlmCall> = []
  /** Index in `calls` of the last request of each connection, if that request was kept. */
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

const toLlmCall = (line: AccessLogLine): LlmCall => {
  const upstreamCallId = GenerationId.valid(line.upstreamGenerationId)
  return {
    // nginx logs the time at which a request ended.
    at: new Date(Math.min(Math.max(0, line.at - line.seconds) * 1000, 8.64e15)).toISOString(),
    requestId: line.requestId,
    method: line.method,
    path: line.target,
    status: line.status,
    ...(line.upstreamCallId === "" ? {} : { callId: line.upstreamCallId }),
    ...(upstreamCallId === undefined ? {} : { upstreamCallId }),
    requestBytes: line.requestBytes,
    responseBytes: line.responseBytes,
    durationMs: Math.round(line.seconds * 1000),
    completed: line.completion === "OK",
    ...(line.upstreamStatus === "" ? { outcome: outcomeHere(line.status) } : {})
  }
}

/** The outcome of a request that nginx ended itself: 499 is that of a client that disconnected. */
const outcomeHere = (status: number): LlmOutcome =>
  status === 499 ? "client_aborted" : status < 400 ? "answered" : "refused"

const decodeLine = Schema.decodeUnknownOption(Schema.fromJsonString(AccessLogLine))

/** Returns the connection of an error. nginx reports `sending to client` if the client was slow when it happened. */
const brokenConnection = (row: string): string | undefined =>
  /^\S+ \S+ \[error\] \d+#\d+: \*(\d+) .{1,200} while (?:reading upstream|sending to client),/u.exec(row)?.[1]

/** Calls `each` with every row, without its line end. A row that is too long is `undefined`. */
const readRows = (each: (row: string | undefined) => void): ((bytes: Uint8Array) => void) => {
  const decoder = new TextDecoder()
  return makeRows(rowBytesMax, ({ bytes }) => each(bytes === undefined ? undefined : decoder.decode(bytes)))
    .push
}
