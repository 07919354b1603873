/** `sql__query`: reads one database of the host, which a JSON file names. */
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import * as ToolUse from "@cogni/sandbox-connections/ToolUse"
import * as Tool from "@cogni/sandbox-loop/Tool"
import * as KeyInjection from "@cogni/sandbox-proxy/KeyInjection"
import * as ReadOnlyQuery from "@cogni/sandbox-sql/ReadOnlyQuery"
import { Effect, type Redacted, Schema, Semaphore } from "effect"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { Refusal } from "./Failure.ts"
import * as JsonFile from "./JsonFile.ts"

const SqlTool = Schema.Struct({
  database: ReadOnlyQuery.ReadOnlyDatabase,
  /** Contents of the database, for agents. */
  description: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(4000))),
  /** Connection whose credential is the password of the role. */
  connection: Schema.optionalKey(Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))),
  /** Server of that connection: https://HOST:PORT of the database. */
  credentialServer: Schema.optionalKey(Schema.String.check(Schema.isPattern(/^https:\/\/[^/]+$/u)))
}).check(
  Schema.makeFilter(({ connection, credentialServer, database }) => {
    if ((connection === undefined) !== (credentialServer === undefined))
      return "connection and credentialServer need each other"
    return connection !== undefined && database.type === "sqlite" ? "SQLite has no password" : undefined
  })
)

export type SqlTool = typeof SqlTool.Type

/** Concurrent queries of this host. */
const queriesMax = 4

/** Concurrent queries of one run, which leave room for others. */
const runQueriesMax = 2

/** Longest words about a failed query, in characters. */
const detailCharactersMax = 700

const fileBytesMax = 64 * 1024

/** Reads the file; `undefined` without one. */
export const read = (file: string | undefined): Effect.Effect<SqlTool | undefined, Refusal> =>
  file === undefined
    ? Effect.succeed(undefined)
    : JsonFile.read(
        {
          variable: "COGNI_SQL_TOOL_FILE",
          file,
          bytesMax: fileBytesMax,
          describes: "a database",
          page: "docs/guides/tools.md"
        },
        SqlTool
      )

const dialects = { sqlite: "SQLite", postgres: "PostgreSQL" } as const

const Answer = Schema.Struct({
  rows: Schema.Array(Schema.Record(Schema.String, Schema.Unknown)),
  isTruncated: Schema.Boolean
})

/** Returns the tool, if a database is named. */
export const make = (
  settings: SqlTool | undefined
): Effect.Effect<ReadonlyArray<Tool.Tool>, never, ConnectionBroker> =>
  Effect.gen(function* () {
    const broker = yield* ConnectionBroker
    const turn = turnsOf(yield* Semaphore.make(queriesMax))
    return settings === undefined ? [] : [toolOf(settings, broker, turn)]
  })

/** Lets the queries of a run begin: the others wait. */
const turnsOf = (all: Semaphore.Semaphore) => {
  const runs = new Map<RunId, { readonly own: Semaphore.Semaphore; users: number }>()
  const enter = (runId: RunId) =>
    Effect.sync(() => {
      const run = runs.get(runId) ?? { own: Semaphore.makeUnsafe(runQueriesMax), users: 0 }
      run.users += 1
      runs.set(runId, run)
      return run
    })
  return (runId: RunId) =>
    <A, E>(query: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      Effect.acquireUseRelease(
        enter(runId),
        ({ own }) => own.withPermit(all.withPermit(query)),
        (run) =>
          Effect.sync(() => {
            run.users -= 1
            if (run.users === 0) runs.delete(runId)
          })
      )
}

const toolOf = (
  { connection, credentialServer, database, description }: SqlTool,
  broker: ConnectionBroker["Service"],
  turn: ReturnType<typeof turnsOf>
): Tool.Tool => {
  const { bytesMax, rowsMax, secondsMax, sqlCharactersMax } = ReadOnlyQuery.limits
  return Tool.make({
    name: "sql__query",
    description:
      `Read a ${dialects[database.type]} database with one SELECT, at most ${rowsMax} rows and ${secondsMax} s.` +
      (description === undefined ? "" : ` ${description}`),
    effect: "read_only",
    input: Schema.Struct({
      sql: Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(sqlCharactersMax)).annotate({
        description: "One SELECT, without a semicolon"
      })
    }),
    output: Answer,
    runtimeSecondsMax: secondsMax + 45,
    resultBytesMax: bytesMax * 2,
    execute: ({ sql }, { runId }) =>
      (connection === undefined
        ? answered(ReadOnlyQuery.run(database, sql), undefined)
        : ToolUse.call(
            broker,
            {
              toolId: "sql__query",
              purpose: "tool_read",
              connection,
              server: credentialServer!,
              target: "sql"
            },
            ({ permit, secret }) =>
              permit.server === credentialServer
                ? answered(ReadOnlyQuery.run(database, sql, secret), secret)
                : Effect.fail({
                    code: "policy_denied",
                    detail: "the credential of this tool is for another server"
                  })
          )
      ).pipe(
        turn(runId),
        Effect.mapError((problem) => new Tool.ToolFailed(problem))
      )
  })
}

const codes = {
  refused: "policy_denied",
  failed: "execution",
  slow: "execution",
  unavailable: "unavailable"
} as const

const answered = (
  query: Effect.Effect<ReadOnlyQuery.QueryAnswer, ReadOnlyQuery.QueryFailed>,
  secret: Redacted.Redacted<string> | undefined
): Effect.Effect<ReadOnlyQuery.QueryAnswer, ToolUse.ToolProblem> =>
  query.pipe(
    Effect.mapError(({ detail, reason }): ToolUse.ToolProblem => ({
      code: codes[reason],
      // Cut last: the rest of a credential that is cut before would not be found.
      detail: (secret === undefined ? detail : KeyInjection.scrub(detail, secret)).slice(
        0,
        detailCharactersMax
      )
    })),
    Effect.filterOrFail(
      ({ rows }) => secret === undefined || !KeyInjection.repeats(JSON.stringify(rows), secret),
      (): ToolUse.ToolProblem => ({
        code: "redaction_failed",
        detail: "the answer repeats the credential of the host, so it is not shown. Ask for something else"
      })
    )
  )
