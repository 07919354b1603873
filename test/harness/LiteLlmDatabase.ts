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
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
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
  /** Runs a query on it. Returns the rows as JSON. */
  readonly select: (query: string) => Effect.Effect<unknown>
  /** All rows of all tables, as SQL. */
  readonly dump: Effect.Effect<string>
  /** The server, for further databases of a test. */
  readonly database: PostgresServer.PostgresServer
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

/** Output of a program of PostgreSQL that is kept. */
const outputBytesMax = 256 * 1024 * 1024

/** Runs a program of PostgreSQL, and returns its output. */
const program = (name: "pg_dump" | "psql", argv: ReadonlyArray<string>, input = "") =>
  Effect.callback<string>((resume) => {
    const child = execFile(
      join(PostgresServer.programs(), name),
      argv,
      { maxBuffer: outputBytesMax },
      (error, stdout, stderr) =>
        resume(
          error === null
            ? Effect.succeed(stdout)
            : Effect.die(new Error(`${name}: ${error.code ?? ""} ${stderr.slice(-2000)}`))
        )
    )
    child.stdin?.end(input)
  })

const psql = (url: string, input: string) =>
  program(
    "psql",
    ["--quiet", "--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", url],
    input
  )

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

export interface Options {
  /** Answers of the models `priced` and `priced-claude`. Default: one word, with {@link LiteLlm.figures}. */
  readonly script?: ScriptedModelApi.Script | undefined
}

const scriptDefault: ScriptedModelApi.Script = () => ({ say: "hello", usage: LiteLlm.figures })

export const make = Effect.fnUntraced(function* ({ script = scriptDefault }: Options = {}) {
  const model = yield* ScriptedModelApi.acquire({ script })
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
        MODEL_OPENAI_URL: `${model.url}/v1`,
        MODEL_ANTHROPIC_URL: model.url,
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
    sql: (statement) => Effect.asVoid(psql(databaseUrl, statement)),
    select: (query) =>
      Effect.map(
        psql(databaseUrl, `SELECT coalesce(json_agg(found), '[]') FROM (${query}) AS found`),
        (text): unknown => JSON.parse(text)
      ),
    dump: program("pg_dump", ["--data-only", "--inserts", databaseUrl]),
    database: postgres,
    stop,
    start
  } satisfies LiteLlmDatabase
})

/** A LiteLLM whose models all say one word. */
export const acquire = make()
