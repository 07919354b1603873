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

/** A line that waits, and the number of its entry. */
export interface Line {
  readonly seq: number
  readonly line: string
  readonly isEnd: boolean
}

/** Lines that are one row. */
export interface Piece {
  readonly first: number
  readonly last: number
  readonly isEnd: boolean
  readonly text: string
}

/** Size after which a row takes no more lines. */
const pieceCharsMax = 64 * 1024

/** Joins lines to pieces. The same lines give the same pieces, except that the last one may grow. */
export const piecesOf = (lines: ReadonlyArray<Line>): ReadonlyArray<Piece> => {
  const pieces: Array<Piece> = []
  let open: Array<Line> = []
  let chars = 0
  const close = () => {
    const [first] = open
    const last = open.at(-1)
    if (first === undefined || last === undefined) return
    const text = open.map(({ line }) => line).join("")
    pieces.push({ first: first.seq, last: last.seq, isEnd: last.isEnd, text })
    open = []
    chars = 0
  }
  for (const line of lines) {
    if (chars + line.line.length > pieceCharsMax) close()
    open.push(line)
    chars += line.line.length
  }
  close()
  return pieces
}

const decodeEntry = Schema.decodeUnknownOption(Schema.fromJsonString(JournalEntrySchema))

/** Returns the entries of a row. A line of a later version is skipped. */
export const entriesOf = (lines: string): ReadonlyArray<JournalEntry> =>
  lines.split("\n").flatMap((line) => Option.toArray(decodeEntry(line)))

/** A run with its size, as the sweep sees it. */
export interface Sized {
  readonly runId: string
  readonly bytes: number
}

/** Returns the runs to remove so that the rest fits, from runs in the order in which they are removed. */
export const beyond = (runs: ReadonlyArray<Sized>, bytesMax: number): ReadonlyArray<string> => {
  let left = runs.reduce((sum, { bytes }) => sum + bytes, 0)
  const removed: Array<string> = []
  for (const { bytes, runId } of runs) {
    if (left <= bytesMax) break
    removed.push(runId)
    left -= bytes
  }
  return removed
}
