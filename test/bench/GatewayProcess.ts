/** A gateway in a process of its own, as it lives in a host process, and as many run sockets as are asked for. */
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { Effect, Redacted } from "effect"
import { mkdirSync } from "node:fs"
import { join } from "node:path"

/** What the gateway is told to be. */
export interface Start {
  readonly url: string
  readonly directory: string
  readonly carrier: "directory" | "container"
  readonly image: string
  readonly models: ReadonlyArray<string>
}

/** What it is asked while it runs. */
export interface Ask {
  readonly open: number
}

/** What it says: the mounts' sources of the sockets it has opened, and its memory then. */
export interface Told {
  readonly sources: ReadonlyArray<string>
  readonly memoryBytes: number
}

const next = <A>() => new Promise<A>((resolve) => process.once("message", (message) => resolve(message as A)))

const program = Effect.gen(function* () {
  const start = yield* Effect.promise(() => next<Start>())
  const proxy = yield* GatewayLlmProxy.make({
    url: start.url,
    key: Redacted.make("sk-bench"),
    carrier: start.carrier,
    image: start.image,
    requestsPerSecondMax: 10_000,
    concurrentCallsMax: 1000,
    connectionsMax: 1000,
    // One run may use its thread whole: what a call costs is measured, not what holds a run back.
    processorShareMax: 1
  }).pipe(
    Effect.provide(
      start.carrier === "container" ? DockerContainerRuntime.layer() : MemoryContainerRuntime.layer()
    )
  )
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
    // Idle is what they are once the threads have given back what opening them took.
    yield* Effect.sleep("1 second")
    globalThis.gc?.()
    process.send?.({ sources, memoryBytes: process.memoryUsage().rss } satisfies Told)
  }
}).pipe(Effect.scoped)

const fiber = Effect.runFork(program)
process.once("disconnect", () => void fiber.interruptUnsafe())
fiber.addObserver((exit) => process.exit(exit._tag === "Success" ? 0 : 1))
