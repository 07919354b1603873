/**
 * Migrates the tables of one module to the version that this code supports.
 *
 * Steps are numbered from 1 and never change once published. Any number of processes may start at the same time: the
 * migrator takes a lock in PostgreSQL, and the SQLite client begins every transaction as a writer. Tables of a later
 * version are refused, because this version cannot interpret them.
 */
import { Effect, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"

/** The tables are not usable by this version. */
export class SchemaRefused extends Schema.TaggedError<SchemaRefused>()("SchemaRefused", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

export interface Tables {
  /** Table that records the completed steps, such as `cogni_runs_version`. */
  readonly versionTable: string
  /** Steps in order. A step creates or changes tables whose names begin with `cogni_`. */
  readonly steps: ReadonlyArray<{
    readonly name: string
    readonly run: (sql: SqlClient.SqlClient) => Effect.Effect<unknown, SqlError>
  }>
}

/** Runs the missing steps. Takes no lock if all steps are done. */
export const bring = Effect.fn("SchemaVersion.bring")(function* ({
  steps,
  versionTable
}: Tables): Effect.fn.Return<void, SchemaRefused | SqlError, SqlClient.SqlClient> {
  const sql = yield* SqlClient.SqlClient
  const known = steps.length
  const version = Effect.map(
    sql<{ readonly id: number | null }>`SELECT MAX(migration_id) AS id FROM ${sql(versionTable)}`,
    ([row]) => Number(row?.id ?? 0)
  )
  // Any error counts as a missing version table. Other errors come again from the migrator.
  if ((yield* Effect.orElseSucceed(version, () => 0)) < known) {
    // Loaded only if needed: most processes find no missing steps.
    const Migrator = yield* Effect.promise(() => import("effect/sql/Migrator"))
    yield* Migrator.make({})({
      table: versionTable,
      loader: Effect.succeed(
        steps.map(({ name, run }, index) => [index + 1, name, Effect.succeed(run(sql))] as const)
      )
    }).pipe(
      Effect.catchTag(
        "MigrationError",
        ({ cause, message }) =>
          new SchemaRefused({
            detail: `cannot migrate ${versionTable} to version ${known}: ${message}${because(cause)}`,
            remedy: "Grant the database user permission to create tables, or check the database's log"
          })
      )
    )
  }
  const found = yield* version
  if (found <= known) return
  return yield* new SchemaRefused({
    detail: `${versionTable} is at version ${found}, but this version of Cogni Sandbox supports only ${known}`,
    remedy: "Update Cogni Sandbox, or use another database"
  })
})

const because = (cause: unknown): string =>
  cause instanceof Error ? ` (${cause.message.slice(0, messageCharactersMax)})` : ""

const messageCharactersMax = 300
