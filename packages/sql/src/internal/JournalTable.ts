/** Table of journals: the entries of a run in pieces, each a row, and when old ones are removed. */
import { type JournalEntry, JournalEntry as JournalEntrySchema } from "@cogni/sandbox-core/RunJournal"
import { Option, Schema } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import * as SchemaVersion from "../SchemaVersion.ts"

/** Creates or migrates the table. */
export const bring = SchemaVersion.bring({
  versionTable: "cogni_journal_version",
  steps: [
    {
      name: "journal",
      run: (sql) => {
        // Times are compared as text, which must not depend on the locale of the database.
        const text = textIn(sql)
        return sql`CREATE TABLE cogni_run_journal (
          run_id ${text} NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, ended INTEGER NOT NULL,
          bytes INTEGER NOT NULL, written_at ${text} NOT NULL, lines TEXT NOT NULL, PRIMARY KEY (run_id, first_seq))`
      }
    },
    {
      name: "old journals",
      run: (sql) => sql`CREATE INDEX cogni_run_journal_time ON cogni_run_journal (written_at, run_id)`
    }
  ]
})

const textIn = (sql: SqlClient) =>
  sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))

/** A line, and the number of its entry. */
export interface Line {
  readonly seq: number
  readonly line: string
  readonly isEnd: boolean
}

/** Lines that wait to be one row. */
export interface Piece {
  readonly first: number
  last: number
  isEnd: boolean
  bytes: number
  text: string
  /** It may be in the table already, so it takes no more lines. */
  isTaken: boolean
}

/** Size after which a row takes no more lines. */
const pieceCharsMax = 64 * 1024

/** Adds a line to the last piece, or begins another one. Returns its size in bytes. */
export const add = (pieces: Array<Piece>, { isEnd, line, seq }: Line): number => {
  const bytes = Buffer.byteLength(line)
  const open = pieces.at(-1)
  if (open === undefined || open.isTaken || open.text.length + line.length > pieceCharsMax) {
    pieces.push({ first: seq, last: seq, isEnd, bytes, text: line, isTaken: false })
    return bytes
  }
  open.last = seq
  open.isEnd = isEnd
  open.bytes += bytes
  open.text += line
  return bytes
}

/** Returns how many pieces of each run are written together: one of each run, then the next one of each, and so on. */
export const countsOf = (
  runs: ReadonlyArray<ReadonlyArray<Pick<Piece, "bytes">>>,
  limits: { readonly rowsMax: number; readonly bytesMax: number }
): ReadonlyArray<number> => {
  const counts = runs.map(() => 0)
  let rows = 0
  let bytes = 0
  for (let turn = 0, isMore = true; isMore; turn += 1) {
    isMore = false
    for (const [at, pieces] of runs.entries()) {
      const piece = pieces[turn]
      if (piece === undefined) continue
      bytes += piece.bytes
      if (rows === limits.rowsMax || (rows > 0 && bytes > limits.bytesMax)) return counts
      rows += 1
      counts[at] = turn + 1
      isMore = true
    }
  }
  return counts
}

const decodeEntry = Schema.decodeUnknownOption(Schema.fromJsonString(JournalEntrySchema))

/** Returns the entries of a row. A line of a later version is skipped. */
export const entriesOf = (lines: string): ReadonlyArray<JournalEntry> =>
  lines.split("\n").flatMap((line) => Option.toArray(decodeEntry(line)))

/** A run with its size and its account, as the sweep sees it. */
interface Sized {
  readonly runId: string
  readonly bytes: number
  /** Empty if the run has no record. */
  readonly account: string
}

/**
 * Returns the runs to remove so that the rest fits, from runs in the order in which those of one account are removed.
 * The next one is always of the account that has the most: an account cannot push out the runs of others.
 */
export const beyond = (runs: ReadonlyArray<Sized>, bytesMax: number): ReadonlyArray<string> => {
  const accounts = [...Map.groupBy(runs, ({ account }) => account).values()].map((own) => ({
    runs: own.values(),
    bytes: own.reduce((sum, { bytes }) => sum + bytes, 0)
  }))
  let left = accounts.reduce((sum, { bytes }) => sum + bytes, 0)
  const removed: Array<string> = []
  while (left > bytesMax) {
    const most = accounts.reduce((largest, next) => (next.bytes > largest.bytes ? next : largest))
    const run = most.runs.next()
    if (run.done === true) break
    removed.push(run.value.runId)
    most.bytes -= run.value.bytes
    left -= run.value.bytes
  }
  return removed
}
