/**
 * A query of SQLite in a process of its own: a query cannot be interrupted in the process that runs it, and one that
 * never ends would stop the host.
 *
 * The connection is read-only. The query is compiled as a part of a SELECT, so that nothing else is one: no PRAGMA, no
 * ATTACH and no second statement. Where Node offers them, an authorizer of SQLite allows only reading, and the length
 * of a value is limited.
 */
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import { Effect, Option, Schema } from "effect"
import { limits, type QueryAnswer, QueryFailed, slow } from "./QueryLimits.ts"

/** Longest text or blob that a query may make, in bytes, where Node can limit it. */
const valueBytesMax = 1024 * 1024

/** The program, in pieces. It reads its task as JSON, and writes its answer as JSON. */
const program = [
  `import { constants, DatabaseSync } from "node:sqlite"
let given = ""
for await (const piece of process.stdin) given += piece`,
  `const { bytesMax, path, rowsMax, sql, valueBytesMax } = JSON.parse(given)
const plain = (value) =>
  typeof value === "bigint"
    ? Number.isSafeInteger(Number(value)) ? Number(value) : String(value)`,
  `    : value instanceof Uint8Array ? { bytes: value.byteLength }
    : typeof value === "number" && !Number.isFinite(value) ? String(value) : value
const answer = () => {
  const limits = { length: valueBytesMax, attach: 0 }`,
  `  const db = new DatabaseSync(path, { readOnly: true, allowExtension: false, limits })
  db.exec("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF")
  if (db.setAuthorizer !== undefined) {`,
  `    const { SQLITE_DENY, SQLITE_FUNCTION, SQLITE_OK, SQLITE_READ, SQLITE_RECURSIVE, SQLITE_SELECT } = constants
    const allowed = new Set([SQLITE_FUNCTION, SQLITE_READ, SQLITE_RECURSIVE, SQLITE_SELECT])
    db.setAuthorizer((action) => (allowed.has(action) ? SQLITE_OK : SQLITE_DENY))
  }`,
  `  const whole = "SELECT * FROM (" + sql + "\\n) LIMIT " + (rowsMax + 1)
  const statement = db.prepare(whole)
  // SQLite compiles the first statement, and ignores the rest.`,
  `  if (statement.sourceSQL !== whole) return { refused: "a query is one SELECT. Remove everything after it" }
  statement.setReadBigInts(true)
  const rows = []
  let bytes = 0`,
  `  for (const row of statement.iterate()) {
    const told = Object.fromEntries(Object.entries(row).map(([key, value]) => [key, plain(value)]))`,
  `    bytes += Buffer.byteLength(JSON.stringify(told)) + 1
    if (rows.length >= rowsMax || bytes > bytesMax) return { rows, isTruncated: true }
    rows.push(told)
  }
  return { rows, isTruncated: false }
}`,
  `let told
try {
  told = answer()
} catch (error) {
  told = { error: String(error.message).slice(0, 500) }
}
process.stdout.write(JSON.stringify(told))`
].join("\n")

/** Temporary files of a query are on the disk of the host: at most 64 MiB each, in blocks of 512 bytes. */
const limited = 'ulimit -f 131072 && exec "$0" "$@"'

const Told = Schema.Union([
  Schema.Struct({
    rows: Schema.Array(Schema.Record(Schema.String, Schema.Unknown)),
    isTruncated: Schema.Boolean
  }),
  Schema.Struct({ refused: Schema.String }),
  Schema.Struct({ error: Schema.String })
])

const decodeTold = Schema.decodeUnknownOption(Schema.fromJsonString(Told))

export const run = Effect.fnUntraced(function* (
  path: string,
  sql: string,
  secondsMax = limits.secondsMax
): Effect.fn.Return<QueryAnswer, QueryFailed> {
  const { bytesMax, rowsMax } = limits
  const { stdout } = yield* HostProgram.run(
    {
      name: "/bin/sh",
      argv: [
        "-c",
        limited,
        process.execPath,
        "--no-warnings",
        "--max-old-space-size=64",
        "--input-type=module",
        "--eval",
        program
      ],
      env: {},
      runtimeSecondsMax: secondsMax,
      stdoutBytesMax: bytesMax * 2
    },
    JSON.stringify({ path, sql, rowsMax, bytesMax, valueBytesMax })
  ).pipe(
    Effect.mapError(({ problem }) =>
      problem === "too_slow"
        ? slow
        : new QueryFailed({ reason: "unavailable", detail: "the database cannot be read on this host" })
    )
  )
  const told = Option.getOrUndefined(decodeTold(stdout.toString("utf8")))
  // It was killed, such as for its memory.
  if (told === undefined)
    return yield* new QueryFailed({
      reason: "failed",
      detail: "the query needed too much memory. Ask for less"
    })
  if ("refused" in told) return yield* new QueryFailed({ reason: "refused", detail: told.refused })
  if ("error" in told)
    return yield* new QueryFailed({
      reason: "failed",
      detail: `the database refused the query, which must be one SELECT that only reads: ${told.error}`
    })
  return told
})
