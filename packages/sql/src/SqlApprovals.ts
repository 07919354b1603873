/**
 * `Approvals` in a database, shared by all processes and hosts that use it: one process waits, another decides.
 *
 * A waiting process renews a lease while it waits. So an approval whose process is gone, also by a restart, can be
 * approved for some seconds at most, and nothing runs then. A decision is one conditional update: the first one wins.
 */
import * as Approval from "@cogni/sandbox-core/Approval"
import { Approvals, type ApprovalsShape } from "@cogni/sandbox-core/Approvals"
import {
  ApprovalNotFound,
  ApprovalOver,
  ApprovalRefused,
  ApprovalsUnavailable
} from "@cogni/sandbox-core/ApprovalError"
import { Clock, Deferred, Effect, Layer, Option, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import { explain } from "./internal/DatabaseFault.ts"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import * as LedgerTables from "./internal/LedgerTables.ts"
import * as SchemaVersion from "./SchemaVersion.ts"

/** Time between two readings of an approval that waits. */
const pollMillis = 1000

/** How long an approval stays pending without its process. */
const leaseSeconds = 15

/** How long ended approvals are kept. */
const keptDays = 90

/** Creates or migrates the table. */
const bring = SchemaVersion.bring({
  versionTable: "cogni_approvals_version",
  steps: [
    {
      name: "approvals",
      run: (sql) => {
        // Times are compared as text, which must not depend on the locale of the database.
        const text = sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
        const counted = sql.literal(
          sql.onDialectOrElse({
            pg: () => "BIGSERIAL PRIMARY KEY",
            orElse: () => "INTEGER PRIMARY KEY AUTOINCREMENT"
          })
        )
        return sql`CREATE TABLE cogni_approvals (
          ordinal ${counted}, approval_id ${text} NOT NULL UNIQUE, run_id ${text} NOT NULL,
          billing_account_id ${text} NOT NULL, requested ${text} NOT NULL, requested_at ${text} NOT NULL,
          expires_at ${text} NOT NULL, lease_until ${text} NOT NULL, status ${text} NOT NULL, ended ${text})`
      }
    },
    {
      name: "approvals of an account",
      run: (sql) => sql`CREATE INDEX cogni_approvals_account ON cogni_approvals (billing_account_id, ordinal)`
    },
    {
      name: "approvals of a run",
      run: (sql) => sql`CREATE INDEX cogni_approvals_run ON cogni_approvals (run_id)`
    },
    {
      name: "pending approvals",
      run: (sql) => sql`CREATE INDEX cogni_approvals_pending ON cogni_approvals (expires_at)
        WHERE status = 'pending'`
    }
  ]
})

/** Removes the old approvals of all accounts. Those of an account that asks are removed with each request, too. */
const sweep = Effect.gen(function* () {
  const sql = yield* SqlClient
  yield* sql`DELETE FROM cogni_approvals WHERE requested_at < ${oldest(yield* Clock.currentTimeMillis)}`
})

/** Requires the table, which {@link layer} creates. */
const make = Effect.gen(function* () {
  const sql = yield* SqlClient
  /** Approvals that wait in this process, which a decision of this process wakes at once. */
  const waiting = new Map<string, Deferred.Deferred<void>>()

  const locked = (account: string) =>
    sql.onDialectOrElse({
      pg: () =>
        Effect.asVoid(
          sql`SELECT pg_advisory_xact_lock(hashtextextended(${`cogni-approvals ${account}`}, 0))`
        ),
      orElse: () => Effect.void
    })

  /** Rows that still wait at a time. */
  const pending = (now: string) => sql`status = 'pending' AND expires_at > ${now} AND lease_until > ${now}`

  const find = Effect.fnUntraced(function* (id: string) {
    const [row] = yield* sql<Row>`SELECT * FROM cogni_approvals WHERE approval_id = ${id}`
    const nowMillis = yield* Clock.currentTimeMillis
    return row === undefined ? undefined : approvalOf(row, nowMillis)
  })

  /** Ends an approval that still waits. Returns it as it is then. */
  const end = Effect.fnUntraced(function* (id: string, how: Approval.ApprovalEnd, account?: string) {
    const nowMillis = yield* Clock.currentTimeMillis
    const at = isoOf(nowMillis)
    // The waiting process itself may end it late.
    const isOpen = how.decidedBy === undefined ? sql`status = 'pending'` : pending(at)
    const own = account === undefined ? sql`1 = 1` : sql`billing_account_id = ${account}`
    const changed = yield* sql`UPDATE cogni_approvals
      SET status = ${how.status}, ended = ${encodeEnd({ ...Approval.end(nothingYet, how, nowMillis) })}
      WHERE approval_id = ${id} AND ${own} AND ${isOpen} RETURNING approval_id`
    const approval = yield* find(id)
    const waiter = waiting.get(id)
    if (waiter !== undefined) Deferred.doneUnsafe(waiter, Effect.void)
    waiting.delete(id)
    return { approval, isChanged: changed.length > 0 }
  })

  const request: ApprovalsShape["request"] = Effect.fn("Approvals.request")(function* (asked) {
    const nowMillis = yield* Clock.currentTimeMillis
    const approval = Approval.begin(asked, nowMillis)
    const account = LedgerTables.escaped(approval.billingAccountId)
    const now = approval.requestedAt
    const row = {
      approval_id: approval.id,
      run_id: approval.runId,
      billing_account_id: account,
      requested: encodeRequested(approval),
      requested_at: now,
      expires_at: approval.expiresAt,
      lease_until: leaseFrom(nowMillis),
      status: "pending",
      ended: null
    }
    const full = yield* database.once(
      sql.withTransaction(
        Effect.gen(function* () {
          yield* locked(account)
          const [counts] = yield* sql<Row>`SELECT COUNT(*) AS of_account,
            COUNT(CASE WHEN run_id = ${approval.runId} THEN 1 END) AS of_run
            FROM cogni_approvals WHERE billing_account_id = ${account} AND ${pending(now)}`
          const refused = Approval.fullOf({
            ofRun: Number(counts?.["of_run"] ?? 0),
            ofAccount: Number(counts?.["of_account"] ?? 0)
          })
          if (refused !== undefined) return refused
          yield* sql`DELETE FROM cogni_approvals WHERE billing_account_id = ${account}
            AND requested_at < ${oldest(nowMillis)}`
          yield* sql`INSERT INTO cogni_approvals ${sql.insert(row)}`
          return undefined
        })
      )
    )
    return full === undefined ? approval : yield* new ApprovalRefused(full)
  })

  /** Renews a lease that has not ended, and reads the approval. Without an answer of the database, it still waits. */
  const look = (id: string) =>
    Clock.currentTimeMillis.pipe(
      Effect.flatMap((nowMillis) =>
        database.again(
          Effect.andThen(
            sql`UPDATE cogni_approvals SET lease_until = ${leaseFrom(nowMillis)}
              WHERE approval_id = ${id} AND status = 'pending' AND lease_until > ${isoOf(nowMillis)}`,
            find(id)
          )
        )
      ),
      Effect.catch((error: ApprovalsUnavailable) => Effect.as(Effect.logWarning(error.message), undefined))
    )

  const settled = (approval: Approval.Approval): Effect.Effect<Approval.Approval> =>
    Effect.acquireUseRelease(
      Effect.sync(() => waiting.set(approval.id, Deferred.makeUnsafe())),
      () =>
        Effect.gen(function* () {
          while (true) {
            const found = yield* look(approval.id)
            if (found !== undefined && found.status !== "pending") return found
            // Woken once at most: after that, a database that does not answer is asked once a second.
            const woken = waiting.get(approval.id)
            yield* woken === undefined
              ? Effect.sleep(pollMillis)
              : Effect.raceFirst(Effect.sleep(pollMillis), Deferred.await(woken))
          }
        }),
      () => Effect.sync(() => waiting.delete(approval.id))
    )

  return {
    request,
    settled,
    close: (approval: Approval.Approval, status: "expired" | "cancelled") =>
      database.again(end(approval.id, { status })).pipe(
        Effect.map((ended) => ended.approval),
        Effect.catch((error: ApprovalsUnavailable) => Effect.as(Effect.logWarning(error.message), undefined)),
        Effect.flatMap((ended) =>
          ended === undefined
            ? Effect.map(Clock.currentTimeMillis, (nowMillis) =>
                Approval.end(approval, { status }, nowMillis)
              )
            : Effect.succeed(ended)
        )
      ),
    list: ({ after, billingAccountId, idPrefix, runId, status }: Approval.ApprovalFilter) =>
      Effect.flatMap(Clock.currentTimeMillis, (nowMillis) => {
        const isPending = status === "pending"
        const conditions = [
          ...(after === undefined ? [] : [beyond(sql, after, isPending)]),
          ...(idPrefix === undefined
            ? []
            : [sql`substr(approval_id, 1, ${idPrefix.length}) = ${LedgerTables.escaped(idPrefix)}`]),
          ...(billingAccountId === undefined
            ? []
            : [sql`billing_account_id = ${LedgerTables.escaped(billingAccountId)}`]),
          ...(runId === undefined ? [] : [sql`run_id = ${LedgerTables.escaped(runId)}`]),
          ...(status === undefined
            ? []
            : [statusIs(sql, status, pending(isoOf(nowMillis)), isoOf(nowMillis))])
        ]
        const where = conditions.length === 0 ? sql`1 = 1` : sql.and(conditions)
        const limit = sql.literal(String(Approval.limits.listedMax))
        const order = sql.literal(isPending ? "ASC" : "DESC")
        return Effect.map(
          database.again(
            sql<Row>`SELECT * FROM cogni_approvals WHERE ${where} ORDER BY ordinal ${order} LIMIT ${limit}`
          ),
          (rows) => rows.map((row) => approvalOf(row, nowMillis)).filter((approval) => approval !== undefined)
        )
      }),
    decide: Effect.fn("Approvals.decide")(function* ({ billingAccountId, by, decision, id, reason }) {
      const account = billingAccountId === undefined ? undefined : LedgerTables.escaped(billingAccountId)
      const how = { status: Approval.endOf(decision), decidedBy: by, reason }
      if (!isApprovalId(id)) return yield* new ApprovalNotFound()
      const { approval, isChanged } = yield* database.again(end(id, how, account))
      if (approval === undefined || (account !== undefined && approval.billingAccountId !== billingAccountId))
        return yield* new ApprovalNotFound()
      return isChanged ? approval : yield* new ApprovalOver({ approval })
    })
  } satisfies ApprovalsShape
})

export const layer: Layer.Layer<never, ApprovalsUnavailable | SchemaVersion.SchemaRefused, SqlClient> =
  Layer.effect(
    Approvals,
    Effect.andThen(
      Effect.andThen(bring, sweep).pipe(
        Effect.catchTag("SqlError", (error: SqlError) => Effect.fail(unavailable(error)))
      ),
      make
    )
  )

type Row = Readonly<Record<string, unknown>>

const isoOf = (millis: number): string => new Date(millis).toISOString()

/** Time from which on approvals are kept. */
const oldest = (nowMillis: number): string => isoOf(nowMillis - keptDays * 86_400_000)

const leaseFrom = (nowMillis: number): string => isoOf(nowMillis + leaseSeconds * 1000)

const isApprovalId = Schema.is(Approval.ApprovalId)

const ends = ["status", "decidedAt", "decidedBy", "reason"] as const

const Requested = Schema.fromJsonString(Approval.Approval.mapFields(Struct.omit(ends)))
const Ended = Schema.fromJsonString(Approval.Approval.mapFields(Struct.pick(ends)))
const encodeRequested = Schema.encodeSync(Requested)
const decodeRequested = Schema.decodeUnknownOption(Requested)
const encodeEnd = Schema.encodeSync(Ended)
const decodeEnd = Schema.decodeUnknownOption(Ended)

/** Stands for any pending approval, of which only the end is stored. */
const nothingYet = { status: "pending" } as Approval.Approval

/** Reads a row. One whose process is gone was cancelled, whatever is stored. */
const approvalOf = (row: Row, nowMillis: number): Approval.Approval | undefined => {
  const requested = Option.getOrUndefined(decodeRequested(row["requested"]))
  if (requested === undefined) return undefined
  const ended = row["ended"] === null ? undefined : Option.getOrUndefined(decodeEnd(row["ended"]))
  const approval = Approval.at({ ...requested, status: "pending", ...ended }, nowMillis)
  const leaseUntil = String(row["lease_until"])
  return approval.status === "pending" && leaseUntil <= isoOf(nowMillis)
    ? { ...approval, status: "cancelled", decidedAt: leaseUntil }
    : approval
}

/** Condition for rows after another one in the order of a list. */
const beyond = (sql: SqlClient, after: string, isOldestFirst: boolean): Fragment => {
  const last = sql`(SELECT ordinal FROM cogni_approvals WHERE approval_id = ${LedgerTables.escaped(after)})`
  return isOldestFirst ? sql`ordinal > ${last}` : sql`ordinal < ${last}`
}

/** Condition for rows that have a status at a time. */
const statusIs = (
  sql: SqlClient,
  status: Approval.ApprovalStatus,
  pending: Fragment,
  now: string
): Fragment => {
  switch (status) {
    case "pending":
      return pending
    case "expired":
      return sql`(status = 'expired' OR (status = 'pending' AND expires_at <= ${now}))`
    case "cancelled":
      return sql`(status = 'cancelled' OR (status = 'pending' AND expires_at > ${now} AND lease_until <= ${now}))`
    default:
      return sql`status = ${status}`
  }
}

const unavailable = (error: SqlError): ApprovalsUnavailable => new ApprovalsUnavailable(explain(error))

const database = DatabaseCall.make(unavailable, (words) => new ApprovalsUnavailable(words))
