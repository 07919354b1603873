/** A server in a separate process with a database, and an in-memory runner whose agent writes as fast as it is read. */
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import * as Records from "../../packages/cli/src/Records.ts"
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
import { createServer } from "node:http"

/** Configuration of the server. */
export interface Start {
  /** A path, or a URL of PostgreSQL. */
  readonly database: string
  readonly directory: string
}

/** Address of the server, and a token for it. */
export interface Ready {
  readonly url: string
  readonly token: string
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

const talk: Program = (io) =>
  Effect.gen(function* () {
    const together = new TextEncoder().encode(line.repeat(linesTogether))
    for (let left = pieces(io); left > 0; left -= linesTogether) {
      yield* io.stdout(left >= linesTogether ? together : line.repeat(left))
    }
    yield* io.stdout(ending)
    return 0
  })

const layer = ({ database, directory }: Start) => {
  const address = Result.getOrThrow(DatabaseAddress.parse(database))
  const settings = {
    stateDirectory: directory,
    database: Result.succeed({ address, variable: undefined })
  } as unknown as Settings["Service"]
  const runner = SandboxRunner.layer.pipe(
    Layer.provide([LlmProxy.layerMemory(), Workspace.layerMemory()]),
    Layer.provideMerge(Layer.merge(MemoryContainerRuntime.layer({ program: talk }), Records.store(settings)))
  )
  const executor = Layer.effect(
    AggregatingGraphExecutor.GraphExecutor,
    Effect.flatMap(SandboxGraphProvider.SandboxGraphProvider, (one) => AggregatingGraphExecutor.make([one]))
  )
  const limits = {
    requestsPerMinutePerGrantMax: 10_000_000,
    runsPerMinutePerGrantMax: 1_000_000
  }
  return SandboxServer.layer({ model: "bench", limits }).pipe(
    Layer.provide(executor),
    Layer.provide(SandboxGraphProvider.layer({ enabled: true, models: ["bench", "bench-*"] })),
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

const program = Effect.gen(function* () {
  const start = yield* Effect.promise(
    () => new Promise<Start>((resolve) => process.once("message", (message) => resolve(message as Start)))
  )
  const context = yield* Layer.build(layer(start))
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
  process.send?.({ url: HttpServer.formatAddress(address), token: GrantToken.tell(token) } satisfies Ready)
  return yield* Effect.never
})

NodeRuntime.runMain(Effect.scoped(program))
