/**
 * Tables of threads: one for those, one for the name of this store, one for their turns, and one for the sessions that
 * agents can continue.
 */
import {
  FilesName,
  newStoreId,
  Thread,
  ThreadKey,
  type ThreadTurn
} from "@cogni/sandbox-graph-provider/threads/Thread"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect } from "effect"
import * as SchemaVersion from "../SchemaVersion.ts"
import { type Row, unescaped } from "./LedgerTables.ts"

/** Creates or migrates the tables. */
export const bring = SchemaVersion.bring({
  versionTable: "cogni_threads_version",
  steps: [
    {
      name: "threads",
      run: (sql) => {
        // Times are compared as text, which must not depend on the locale of the database.
        const text = sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
        const threads = sql`CREATE TABLE cogni_threads (
          thread_key ${text} PRIMARY KEY, billing_account_id ${text} NOT NULL, thread_id ${text} NOT NULL,
          created_at ${text} NOT NULL, used_at ${text} NOT NULL, turns INTEGER NOT NULL,
          history_bytes BIGINT NOT NULL, host ${text}, files ${text}, workspace_bytes BIGINT NOT NULL,
          holder ${text}, held_until ${text})`
        return Effect.all([
          threads,
          sql`CREATE TABLE cogni_threads_store (id TEXT NOT NULL)`,
          sql`INSERT INTO cogni_threads_store (id) VALUES (${newStoreId()})`
        ])
      }
    },
    {
      name: "threads of an account",
      run: (sql) => sql`CREATE INDEX cogni_threads_account ON cogni_threads (billing_account_id, used_at)`
    },
    {
      name: "turns",
      run: (sql) => sql`CREATE TABLE cogni_thread_turns (
        thread_key TEXT NOT NULL, number INTEGER NOT NULL, run_id TEXT NOT NULL, agent TEXT NOT NULL,
        bytes INTEGER NOT NULL, asked TEXT NOT NULL, answered TEXT NOT NULL, ended_at TEXT NOT NULL,
        PRIMARY KEY (thread_key, number))`
    },
    {
      name: "sessions",
      run: (sql) => sql`CREATE TABLE cogni_thread_sessions (
        thread_key TEXT NOT NULL, agent TEXT NOT NULL, session_id TEXT NOT NULL, turns INTEGER NOT NULL,
        PRIMARY KEY (thread_key, agent))`
    }
  ]
})

const textOf = (value: unknown): string => String(unescaped(value) ?? "")

/** Converts a row of `cogni_threads`, as it is at a time. */
export const threadOf = (row: Row, now: string): Thread =>
  Thread.make({
    key: ThreadKey.make(String(row["thread_key"])),
    billingAccountId: textOf(row["billing_account_id"]),
    threadId: textOf(row["thread_id"]),
    createdAt: String(row["created_at"]),
    usedAt: String(row["used_at"]),
    turns: Number(row["turns"]),
    historyBytes: Number(row["history_bytes"]),
    workspaceBytes: Number(row["workspace_bytes"]),
    isBusy: row["holder"] !== null && String(row["held_until"]) > now,
    ...(row["host"] === null ? {} : { host: textOf(row["host"]) }),
    ...(row["files"] === null ? {} : { files: FilesName.make(String(row["files"])) })
  })

export const turnOf = (row: Row): ThreadTurn => ({
  runId: RunId.RunId.make(String(row["run_id"])),
  agent: textOf(row["agent"]),
  asked: textOf(row["asked"]),
  answered: textOf(row["answered"]),
  at: String(row["ended_at"])
})
