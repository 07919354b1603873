/**
 * The tables of one owner in a database, brought to the version that this code knows.
 *
 * Steps are counted from 1 and never change once they were published. Any number of processes may begin at once: the
 * migrator takes a lock in PostgreSQL, and the SQLite client begins every transaction as a writer. Tables that a later
 * version made are refused, because this one cannot know what they mean.
 */
import { Effect, Schema } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"

/** The tables cannot be used by this version. */
export class SchemaRefused extends Schema.TaggedError<SchemaRefused>()("SchemaRefused", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

export interface Tables {
  /** The table that says which steps are done, such as `cogni_runs_version`. */
  readonly versionTable: string
  /** In their order; a step makes or changes tables whose names begin with `cogni_`. */
  readonly steps: ReadonlyArray<{
    readonly name: string
    readonly run: (sql: SqlClient.SqlClient) => Effect.Effect<unknown, SqlError>
  }>
}

/** Take the steps that are not taken yet; where there are none, nothing is locked. */
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
  // Where the table is not there yet, that is the error; any other comes again from the migrator.
  if ((yield* Effect.orElseSucceed(version, () => 0)) < known) {
    // Loaded where there is something to do: most who begin find all done.
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
            detail: `${versionTable} could not be brought to version ${known}: ${message}${because(cause)}`,
            remedy: "Give the database's user the right to create tables, or look at the database's log"
          })
      )
    )
  }
  const found = yield* version
  if (found <= known) return
  return yield* new SchemaRefused({
    detail: `${versionTable} is at version ${found}, and this version of Cogni Sandbox knows ${known}`,
    remedy: "Update Cogni Sandbox, or name another database"
  })
})

const because = (cause: unknown): string =>
  cause instanceof Error ? ` (${cause.message.slice(0, messageCharactersMax)})` : ""

const messageCharactersMax = 300
