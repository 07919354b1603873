/** A gateway in a separate process, as in a host process, with as many run sockets as requested. */
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import type { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as LedgerLlmProxy from "@cogni/sandbox-ledger/LedgerLlmProxy"
import * as AuditCalls from "@cogni/sandbox-proxy/AuditCalls"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as RunKeys from "@cogni/sandbox-proxy/RunKeys"
import * as Database from "@cogni/sandbox-sql/Database"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import { Effect, Layer, Redacted } from "effect"
import { mkdirSync } from "node:fs"
import { join } from "node:path"

/** Configuration of the gateway. */
export interface Start {
  readonly url: string
  readonly directory: string
  readonly carrier: "directory" | "container"
  readonly image: string
  readonly models: ReadonlyArray<string>
  /** Gives each run a key of its own, and enters it into a ledger in SQLite. */
  readonly isBilled: boolean
}

/** A request to open more run sockets. */
export interface Ask {
  readonly open: number
}

/** The mount sources of the opened sockets, and the memory of the process after that. */
export interface Told {
  readonly sources: ReadonlyArray<string>
  readonly memoryBytes: number
}

const next = <A>() => new Promise<A>((resolve) => process.once("message", (message) => resolve(message as A)))

const billed = (gateway: LlmProxy["Service"], path: string) =>
  Effect.flatMap(
    Layer.build(SqlLedger.layer.pipe(Layer.provide(Database.layer({ _tag: "Sqlite", path })))),
    (ledger) =>
      LedgerLlmProxy.make(gateway, {
        host: HostOwner.machineName(),
        owner: ResourceLabels.formatOwner(HostOwner.self()),
        isOrphaned: () => false,
        callsOf: AuditCalls.reader()
      }).pipe(Effect.provide(ledger))
  )

const residentBytes = Effect.sync(() => {
  globalThis.gc?.()
  return process.memoryUsage().rss
}).pipe(Effect.delay("1 second"))

/** Sockets are idle once the threads have released the memory that opening them took: this waits at most 10 seconds. */
const idleBytes = Effect.gen(function* () {
  let bytes = yield* residentBytes
  for (let round = 0; round < 9; round++) {
    const next = yield* residentBytes
    const isStill = next > bytes * 0.995
    bytes = Math.min(bytes, next)
    if (isStill) break
  }
  return bytes
})

const program = Effect.gen(function* () {
  const start = yield* Effect.promise(() => next<Start>())
  const gateway = yield* GatewayLlmProxy.make({
    url: start.url,
    ...(start.isBilled ? { runKeys: { keys: yield* RunKeys.makeMemory() } } : {}),
    key: Redacted.make("sk-bench"),
    carrier: start.carrier,
    image: start.image,
    requestsPerSecondMax: 10_000,
    concurrentCallsMax: 1000,
    connectionsMax: 1000,
    // One run may use its whole thread: this measures the cost of a call, not the limits of a run.
    processorShareMax: 1
  }).pipe(
    Effect.provide([
      start.carrier === "container" ? DockerContainerRuntime.layer() : MemoryContainerRuntime.layer(),
      UsageObserver.layerNone
    ])
  )
  const proxy = start.isBilled ? yield* billed(gateway, join(start.directory, "ledger.db")) : gateway
  let opened = 0
  const open = Effect.gen(function* () {
    const directory = join(start.directory, `run-${opened++}`)
    mkdirSync(directory)
    const base = LlmProxyContract.requestOf(yield* RunId.generate)
    const endpoint = yield* proxy.acquire({
      ...base,
      directory,
      llm: {
        ...base.llm,
        model: start.models[0]!,
        models: Object.fromEntries(start.models.map((name) => [name, name]))
      }
    })
    yield* endpoint.ready
    return endpoint.mounts[0]!.source
  })
  process.send?.("ready")
  for (;;) {
    const ask = yield* Effect.promise(() => next<Ask>())
    const sources = yield* Effect.forEach(Array.from({ length: ask.open }), () => open, { concurrency: 16 })
    process.send?.({ sources, memoryBytes: yield* idleBytes } satisfies Told)
  }
}).pipe(Effect.scoped)

const fiber = Effect.runFork(program)
process.once("disconnect", () => void fiber.interruptUnsafe())
fiber.addObserver((exit) => process.exit(exit._tag === "Success" ? 0 : 1))
