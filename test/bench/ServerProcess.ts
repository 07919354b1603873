/** A server in a separate process with a database, and an in-memory runner whose agent writes as fast as it is read. */
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import * as Records from "../../packages/cli/src/Records.ts"
import * as RunTables from "../../packages/sql/src/internal/RunTables.ts"
import type { Settings } from "../../packages/cli/src/Settings.ts"
import * as AgentCatalog from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import * as SqlGrantStore from "@cogni/sandbox-sql/SqlGrantStore"
import * as IdempotencyKeys from "@cogni/sandbox-server/IdempotencyKeys"
import * as SandboxServer from "@cogni/sandbox-server/SandboxServer"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Context, Effect, Layer, Result } from "effect"
import { HttpServer } from "effect/http"
import { SqlClient } from "effect/sql/SqlClient"
import { createServer } from "node:http"

/** Configuration of the server. */
export interface Start {
  /** A path, or a URL of PostgreSQL. */
  readonly database: string
  readonly directory: string
  /** Number of recorded runs that the database has from the beginning. */
  readonly recorded: number
  /** Directory of the built page, if it is served. */
  readonly page?: string | undefined
}

/** Address of the server, a token for it, and the recorded runs of the account of the token. */
export interface Ready {
  readonly url: string
  readonly token: string
  readonly recorded: ReadonlyArray<string>
}

/** Answer to each message: memory and CPU time so far. */
export interface Told {
  readonly memoryBytes: number
  readonly cpuMillis: number
}

/** Returns the number of pieces that an agent writes: the number in its model's name. */
const pieces = ({ spec }: Parameters<Program>[0]): number =>
  Number(/bench-(\d+)/u.exec(JSON.stringify([spec.argv, spec.env]))?.[1] ?? 1)

const line = `${JSON.stringify({
  type: "stream_event",
  session_id: "bench",
  parent_tool_use_id: null,
  event: { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "a few words " } }
})}\n`
const ending = `${JSON.stringify({ type: "result", subtype: "success", is_error: false, session_id: "bench", result: "done" })}\n`

/** Lines that the kernel returns together. */
const linesTogether = 64

/** Time between two lines of a paced run, in milliseconds. */
const paceMillis = 10

/** Returns the number of lines of a paced run: the number in its model's name. */
const paced = ({ spec }: Parameters<Program>[0]): number | undefined => {
  const [, lines] = /paced-(\d+)/u.exec(JSON.stringify([spec.argv, spec.env])) ?? []
  return lines === undefined ? undefined : Number(lines)
}

const talk: Program = (io) =>
  Effect.gen(function* () {
    const lines = paced(io)
    if (lines !== undefined) {
      for (let written = 0; written < lines; written++) {
        yield* io.stdout(line)
        yield* Effect.sleep(`${paceMillis} millis`)
      }
      yield* io.stdout(ending)
      return 0
    }
    const together = new TextEncoder().encode(line.repeat(linesTogether))
    for (let left = pieces(io); left > 0; left -= linesTogether) {
      yield* io.stdout(left >= linesTogether ? together : line.repeat(left))
    }
    yield* io.stdout(ending)
    return 0
  })

const layer = ({ database, directory, page }: Start) => {
  const address = Result.getOrThrow(DatabaseAddress.parse(database))
  const settings = {
    stateDirectory: directory,
    database: Result.succeed({ address, variable: undefined })
  } as unknown as Settings["Service"]
  const runner = SandboxRunner.layer.pipe(
    Layer.provide([LlmProxy.layerMemory(), Workspace.layerMemory()]),
    Layer.provideMerge(Layer.merge(MemoryContainerRuntime.layer({ program: talk }), Records.store(settings))),
    Layer.provideMerge(Records.journal(settings))
  )
  const executor = Layer.effect(
    AggregatingGraphExecutor.GraphExecutor,
    Effect.flatMap(SandboxGraphProvider.SandboxGraphProvider, (one) => AggregatingGraphExecutor.make([one]))
  )
  const limits = {
    requestsPerMinutePerGrantMax: 10_000_000,
    runsPerMinutePerGrantMax: 1_000_000
  }
  return SandboxServer.layer({ model: "bench", limits, page }).pipe(
    Layer.provide(executor),
    Layer.provide(SandboxGraphProvider.layer({ enabled: true, models: ["bench", "bench-*", "paced-*"] })),
    Layer.provide([
      AgentCatalog.layer(),
      GraphObserver.layerNone,
      IdempotencyKeys.layerMemory,
      Repositories.layerNoop
    ]),
    Layer.provide(AgentRegistry.layer()),
    Layer.provideMerge(SqlGrantStore.layer.pipe(Layer.provide(Database.layer(address)))),
    Layer.provideMerge(runner),
    Layer.provideMerge(NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0 }))
  )
}

const recordedRunId = (index: number) => RunId.make(`run-${String(index).padStart(12, "0")}`)

const accountOf = (index: number) => (index % 3 === 0 ? "other" : "acct")

/** Writes records of runs of several accounts, agents and models into the database. */
const recorded = Effect.fnUntraced(function* (count: number) {
  const sql = yield* SqlClient
  const spec = yield* SpecDecoder.decode({
    image: "cogni-sandbox/runtime:latest",
    argv: ["agent"],
    inputs: [{ name: "messages.json", content: "x".repeat(4000) }],
    llm: { model: "bench", identity: { billingAccountId: "acct", agentId: "codex" } }
  })
  const [model, identity] = [spec.llm!, spec.llm!.identity]
  yield* sql.withTransaction(
    Effect.forEach(
      Array.from({ length: count }, (_, index) => index),
      (index) => {
        const startedAt = new Date(1_700_000_000_000 + index * 1000).toISOString()
        const record: RunRecord = {
          runId: recordedRunId(index),
          spec: {
            ...spec,
            llm: {
              ...model,
              model: `bench-${index % 7}`,
              identity: { ...identity, billingAccountId: accountOf(index) }
            }
          },
          owner: "bench/1/0",
          startedAt,
          endedAt: startedAt,
          outcome:
            index % 100 === 0
              ? { status: "failed", reason: "OomKilled", code: "oom_killed", message: "m" }
              : { status: "closed" },
          timings: []
        }
        const row = { ...RunTables.rowOf(record), host: "bench", claim_id: "bench" }
        return Effect.andThen(
          sql`INSERT INTO cogni_runs ${sql.insert(row)}`,
          RunTables.writeDerived(sql, record)
        )
      },
      { discard: true }
    )
  )
})

const program = Effect.gen(function* () {
  const start = yield* Effect.promise(
    () => new Promise<Start>((resolve) => process.once("message", (message) => resolve(message as Start)))
  )
  const context = yield* Layer.build(layer(start))
  const database = Result.getOrThrow(DatabaseAddress.parse(start.database))
  yield* recorded(start.recorded).pipe(Effect.provide(Database.layer(database)))
  const { token } = yield* Context.get(context, GrantStore).issue({
    userId: "user",
    billingAccountId: "acct",
    scopes: ["graph:execute:*"],
    allowSandbox: true,
    expiresAt: null
  })
  process.on("message", () => {
    globalThis.gc?.()
    const { system, user } = process.cpuUsage()
    process.send?.({
      memoryBytes: process.memoryUsage.rss(),
      cpuMillis: (system + user) / 1000
    } satisfies Told)
  })
  const { address } = Context.get(context, HttpServer.HttpServer)
  process.send?.({
    url: HttpServer.formatAddress(address),
    token: GrantToken.tell(token),
    recorded: Array.from({ length: start.recorded }, (_, index) => index)
      .filter((index) => accountOf(index) === "acct")
      .map(recordedRunId)
  } satisfies Ready)
  return yield* Effect.never
})

NodeRuntime.runMain(Effect.scoped(program))
