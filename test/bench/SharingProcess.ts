/** A host process with a proxy for many runs, the gateway or a shared nginx, and as many runs as requested. */
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as SharedNginxLlmProxy from "@cogni/sandbox-proxy/SharedNginxLlmProxy"
import { Cause, Effect, Redacted } from "effect"
import { mkdirSync } from "node:fs"
import { join } from "node:path"

export interface Start {
  readonly kind: "gateway" | "nginx-shared"
  readonly url: string
  readonly directory: string
  readonly image: string
}

export interface Ask {
  readonly open: number
}

export interface Told {
  /** Directories with the sockets of the opened runs. */
  readonly sources: ReadonlyArray<string>
  /** Memory of this process, with all its threads. */
  readonly memoryBytes: number
}

const next = <A>() => new Promise<A>((resolve) => process.once("message", (message) => resolve(message as A)))

const residentBytes = Effect.sync(() => {
  globalThis.gc?.()
  return process.memoryUsage().rss
}).pipe(Effect.delay("1 second"))

/** The least of some measurements, after the threads had time to release what opening took. */
const idleBytes = Effect.map(Effect.all(Array.from({ length: 4 }, () => residentBytes)), (all) =>
  Math.min(...all)
)

const program = Effect.gen(function* () {
  const { directory, image, kind, url } = yield* Effect.promise(() => next<Start>())
  const limits = { requestsPerSecondMax: 10_000 }
  const proxy = yield* (
    kind === "gateway"
      ? GatewayLlmProxy.make({ ...limits, url, key: Redacted.make("sk-bench"), carrier: "directory", image })
      : SharedNginxLlmProxy.make({
          ...limits,
          upstream: { type: "host", url },
          key: Redacted.make("sk-bench"),
          image,
          directory
        })
  ).pipe(Effect.provide([DockerContainerRuntime.layer(), UsageObserver.layerNone]))
  let opened = 0
  const open = Effect.gen(function* () {
    const own = join(directory, `run-${opened++}`)
    mkdirSync(own)
    const base = LlmProxyContract.requestOf(yield* RunId.generate)
    const endpoint = yield* proxy.acquire({
      ...base,
      directory: own,
      runtimeSecondsMax: 3600,
      // An nginx reads no bodies, so it can hold a run to no model.
      llm: { ...base.llm, model: "m", ...(kind === "gateway" ? { models: { m: "m" } } : {}) }
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
fiber.addObserver((exit) => {
  if (exit._tag === "Success" || Cause.hasInterruptsOnly(exit.cause)) process.exit(0)
  process.stderr.write(`${Cause.pretty(exit.cause)}\n`, () => process.exit(1))
})
