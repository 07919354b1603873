/**
 * `ThreadStore` in a database, shared by all processes and hosts that use it.
 *
 * A thread is held by one conditional update, and every change of it has the holder as its condition. Texts of callers
 * and agents are stored with escapes, because PostgreSQL refuses some characters.
 */
import type { FilesName, ThreadKey, ThreadName } from "@cogni/sandbox-graph-provider/threads/Thread"
import { turnBytes } from "@cogni/sandbox-graph-provider/threads/Thread"
import {
  ThreadBusy,
  ThreadLimitReached,
  ThreadLost,
  ThreadsUnavailable
} from "@cogni/sandbox-graph-provider/threads/ThreadError"
import { ThreadStore } from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import {
  type EndedTurn,
  type HistoryPart,
  type Hold,
  holdSeconds,
  listedMax
} from "@cogni/sandbox-graph-provider/threads/Thread"
import { Array as Arr, Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import { escaped, type Row, unescaped } from "./internal/LedgerTables.ts"
import { bring, threadOf, turnOf } from "./internal/ThreadTables.ts"
import type * as SchemaVersion from "./SchemaVersion.ts"

const isoOf = (millis: number): string => new Date(millis).toISOString()

/** Names in one query. */
const namesMax = 500

/** Largest value of the column. */
const turnNumberMax = 2 ** 31 - 1

const sumOf = (rows: ReadonlyArray<Row>, column: string): number =>
  rows.reduce((sum, row) => sum + Number(row[column] ?? 0), 0)

/** Requires the tables, which {@link layer} creates. */
const make = Effect.gen(function* () {
  const sql = yield* SqlClient
  const [store] = yield* database.again(sql<Row>`SELECT id FROM cogni_threads_store`)

  /**
   * The time of the database, because hosts compare the holds of each other: a host whose clock is ahead would see them
   * as ended. The processes that share a file of SQLite have the clock of one host.
   */
  const millisNow = sql.onDialectOrElse({
    pg: () =>
      Effect.map(
        sql<Row>`SELECT floor(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint::text AS millis`,
        ([row]) => Number(row?.["millis"])
      ),
    orElse: () => Clock.currentTimeMillis
  })
  const times = Effect.map(database.again(millisNow), (millis) => ({
    now: isoOf(millis),
    until: isoOf(millis + holdSeconds * 1000)
  }))

  /** Creates accounts' threads one after another in PostgreSQL, so that they count each other. */
  const locked = (account: string) =>
    sql.onDialectOrElse({
      pg: () =>
        Effect.asVoid(sql`SELECT pg_advisory_xact_lock(hashtextextended(${`cogni-threads ${account}`}, 0))`),
      orElse: () => Effect.void
    })

  const create = ({ billingAccountId, threadId }: ThreadName, key: ThreadKey, max: number, now: string) => {
    const account = escaped(billingAccountId)
    const row = {
      thread_key: key,
      billing_account_id: account,
      thread_id: escaped(threadId),
      created_at: now,
      used_at: now,
      turns: 0,
      history_bytes: 0,
      workspace_bytes: 0
    }
    return sql.withTransaction(
      Effect.gen(function* () {
        yield* locked(account)
        const [known] = yield* sql<Row>`SELECT thread_key FROM cogni_threads WHERE thread_key = ${key}`
        if (known !== undefined) return true
        const [count] = yield* sql<Row>`SELECT COUNT(*) AS threads FROM cogni_threads
          WHERE billing_account_id = ${account}`
        if (Number(count?.["threads"] ?? 0) >= max) return false
        yield* sql`INSERT INTO cogni_threads ${sql.insert(row)} ON CONFLICT DO NOTHING`
        return true
      })
    )
  }

  const rowOf = (key: ThreadKey) =>
    Effect.map(sql<Row>`SELECT * FROM cogni_threads WHERE thread_key = ${key}`, ([row]) => row)

  const take = Effect.fnUntraced(function* ({ holder, key }: Hold) {
    const { now, until } = yield* times
    const row = yield* database.again(
      Effect.andThen(
        sql`UPDATE cogni_threads SET holder = ${holder}, held_until = ${until} WHERE thread_key = ${key}
          AND (holder IS NULL OR holder = ${holder} OR held_until <= ${now})`,
        rowOf(key)
      )
    )
    if (row === undefined) return undefined
    if (row["holder"] === holder) return threadOf(row, now)
    const left = Date.parse(String(row["held_until"])) - Date.parse(now)
    return yield* new ThreadBusy({ retrySeconds: Math.max(1, Math.ceil(left / 1000)) })
  })

  /** Makes changes if the thread is held, all or none. */
  const asHolder = Effect.fnUntraced(function* (
    { holder, key }: Hold,
    change: (now: string) => Effect.Effect<unknown, SqlError>
  ) {
    const { now, until } = yield* times
    const isHeld = yield* database.again(
      sql.withTransaction(
        Effect.gen(function* () {
          const held = yield* sql<Row>`UPDATE cogni_threads SET held_until = ${until}
            WHERE thread_key = ${key} AND holder = ${holder} AND held_until > ${now} RETURNING thread_key`
          if (held.length === 0) return false
          yield* change(now)
          return true
        })
      )
    )
    if (!isHeld) return yield* new ThreadLost()
  })

  const begin = (
    hold: Hold,
    { agent, files, host }: { readonly agent: string; readonly host: string; readonly files: FilesName }
  ) =>
    asHolder(hold, (now) =>
      Effect.andThen(
        sql`DELETE FROM cogni_thread_sessions WHERE thread_key = ${hold.key} AND agent = ${escaped(agent)}`,
        sql`UPDATE cogni_threads SET host = ${escaped(host)}, files = ${files}, workspace_bytes = 0,
          used_at = ${now} WHERE thread_key = ${hold.key}`
      )
    )

  /** Idempotent: a turn that was recorded before an answer was lost is not recorded again. */
  const end = ({ holder, key }: Hold, { sessionId, turn, workspaceBytes }: EndedTurn) =>
    asHolder({ holder, key }, (now) =>
      Effect.gen(function* () {
        const [again] = yield* sql<Row>`SELECT number FROM cogni_thread_turns
          WHERE thread_key = ${key} AND run_id = ${turn.runId}`
        if (again !== undefined) return
        const number = Number((yield* rowOf(key))?.["turns"] ?? 0) + 1
        const agent = escaped(turn.agent)
        yield* sql`INSERT INTO cogni_thread_turns ${sql.insert({
          thread_key: key,
          number,
          run_id: turn.runId,
          agent,
          bytes: turnBytes(turn),
          asked: escaped(turn.asked),
          answered: escaped(turn.answered),
          ended_at: now
        })}`
        yield* sql`UPDATE cogni_threads SET turns = ${number}, used_at = ${now},
          history_bytes = history_bytes + ${turnBytes(turn)}, workspace_bytes = ${workspaceBytes}
          WHERE thread_key = ${key}`
        yield* sql`DELETE FROM cogni_thread_sessions WHERE thread_key = ${key} AND agent = ${agent}`
        if (sessionId === undefined) return
        const session = { thread_key: key, agent, session_id: sessionId, turns: number }
        yield* sql`INSERT INTO cogni_thread_sessions ${sql.insert(session)}`
      })
    )

  const forget = ({ holder, key }: Hold, { history }: { readonly history: boolean }) =>
    asHolder({ holder, key }, () =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM cogni_thread_sessions WHERE thread_key = ${key}`
        if (history) {
          yield* sql`UPDATE cogni_threads SET host = NULL, files = NULL, workspace_bytes = 0
            WHERE thread_key = ${key}`
          return
        }
        yield* sql`DELETE FROM cogni_thread_turns WHERE thread_key = ${key}`
        yield* sql`DELETE FROM cogni_threads WHERE thread_key = ${key}`
      })
    )

  /** Sums the sizes before any text is read. */
  const history = (key: ThreadKey, part: HistoryPart = {}) => {
    const most = Number.MAX_SAFE_INTEGER
    const { after = 0, before = most, bytesMax = most, turnsMax = most } = part
    return Effect.map(
      database.again(sql<Row>`SELECT turns.* FROM cogni_thread_turns AS turns JOIN (
          SELECT number, bytes, SUM(bytes) OVER (ORDER BY number DESC) AS total FROM cogni_thread_turns
          WHERE thread_key = ${key} AND number > ${after} AND number < ${Math.min(before, turnNumberMax)}
          ORDER BY number DESC LIMIT ${sql.literal(String(turnsMax))}
        ) AS newest ON newest.number = turns.number
        WHERE turns.thread_key = ${key}
          AND (newest.total <= ${sql.literal(String(bytesMax))} OR newest.total = newest.bytes)
        ORDER BY turns.number`),
      (rows) => rows.map(turnOf)
    )
  }

  return ThreadStore.of({
    id: String(store?.["id"]),
    claim: Effect.fn("ThreadStore.claim")(function* (name, hold, threadsPerAccountMax) {
      const { now } = yield* times
      const mayExist = yield* database.again(create(name, hold.key, threadsPerAccountMax, now))
      const thread = mayExist ? yield* take(hold) : undefined
      if (thread !== undefined) return thread
      // It was removed in between, and its account may have another one now.
      if (mayExist) return yield* new ThreadBusy({ retrySeconds: 1 })
      return yield* new ThreadLimitReached({ limit: "threads", max: threadsPerAccountMax })
    }),
    claimKnown: take,
    renew: (hold) => asHolder(hold, () => Effect.void),
    release: ({ holder, key }) =>
      database
        .again(
          Effect.andThen(
            sql`DELETE FROM cogni_threads
            WHERE thread_key = ${key} AND holder = ${holder} AND turns = 0 AND host IS NULL`,
            sql`UPDATE cogni_threads SET holder = NULL, held_until = NULL
            WHERE thread_key = ${key} AND holder = ${holder}`
          )
        )
        .pipe(Effect.asVoid),
    begin,
    end,
    resize: (hold, workspaceBytes) =>
      asHolder(
        hold,
        () => sql`UPDATE cogni_threads SET workspace_bytes = ${workspaceBytes} WHERE thread_key = ${hold.key}`
      ),
    forget,
    history,
    sessionOf: (key, agent) =>
      Effect.map(
        database.again(sql<Row>`SELECT session_id, turns FROM cogni_thread_sessions
          WHERE thread_key = ${key} AND agent = ${escaped(agent)}`),
        ([row]) =>
          row === undefined
            ? undefined
            : { sessionId: String(row["session_id"]), turns: Number(row["turns"]) }
      ),
    sizesOf: Effect.fnUntraced(function* (names) {
      const rows = yield* Effect.forEach(Arr.chunksOf(names, namesMax), (some) =>
        database.again(sql<Row>`SELECT billing_account_id, COUNT(*) AS files, SUM(workspace_bytes) AS bytes,
          SUM(CASE WHEN workspace_bytes = 0 THEN 1 ELSE 0 END) AS unmeasured
          FROM cogni_threads WHERE files IN ${sql.in(some)} GROUP BY billing_account_id`)
      )
      return [...Map.groupBy(rows.flat(), (row) => String(unescaped(row["billing_account_id"])))].map(
        ([billingAccountId, parts]) => ({
          billingAccountId,
          count: sumOf(parts, "files"),
          bytes: sumOf(parts, "bytes"),
          unmeasured: sumOf(parts, "unmeasured")
        })
      )
    }),
    find: Effect.fnUntraced(function* (key) {
      const { now } = yield* times
      const row = yield* database.again(rowOf(key))
      return row === undefined ? undefined : threadOf(row, now)
    }),
    accounts: Effect.map(
      database.again(sql<Row>`SELECT DISTINCT billing_account_id FROM cogni_threads`),
      (rows) => rows.map((row) => String(unescaped(row["billing_account_id"])))
    ),
    list: Effect.fnUntraced(function* ({ billingAccountId }) {
      const { now } = yield* times
      const own =
        billingAccountId === undefined ? sql`1 = 1` : sql`billing_account_id = ${escaped(billingAccountId)}`
      const limit = sql.literal(String(listedMax))
      const rows = yield* database.again(
        sql<Row>`SELECT * FROM cogni_threads WHERE ${own} ORDER BY used_at DESC, thread_key LIMIT ${limit}`
      )
      return rows.map((row) => threadOf(row, now))
    })
  })
})

export const layer: Layer.Layer<ThreadStore, ThreadsUnavailable | SchemaVersion.SchemaRefused, SqlClient> =
  Layer.effect(
    ThreadStore,
    Effect.andThen(
      Effect.catchTag(bring, "SqlError", (error) => Effect.fail(unavailable(error))),
      make
    )
  )

/** Converts an error without the database's message, which may repeat a conversation. */
const unavailable = ({ reason }: SqlError): ThreadsUnavailable =>
  new ThreadsUnavailable({
    detail: `cannot be used (${reason._tag})`,
    remedy: "Check the database and the connection to it, then try again"
  })

const database = DatabaseCall.make(unavailable, (words) => new ThreadsUnavailable(words))
