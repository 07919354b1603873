/** The server of `examples/computesdk` in a separate process, with a pool that its parent can watch. */
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostSandboxPool from "@cogni/sandbox-docker/HostSandboxPool"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Context, Effect, Layer, Queue, Stream } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import { createServer } from "node:http"
import { join } from "node:path"
import * as Sandboxes from "../../examples/computesdk/Sandboxes.ts"

/** Configuration of the server. */
export interface Start {
  readonly directory: string
  readonly image: string
  readonly token: string
  readonly sandboxesMax: number
  /** Sandboxes that wait; 0 for a server without a pool. */
  readonly keep: number
}

export interface Ready {
  readonly url: string
}

/** Answer to each message: counts of the pool. */
export interface Told {
  readonly waiting: number
  readonly removing: number
  readonly hits: number
}

const layer = ({ directory, image, keep, sandboxesMax, token }: Start) => {
  const pool = HostSandboxPool.layer({
    keep: [{ image, count: keep, supervised: true }],
    limits: { sandboxesMax: keep }
  })
  const runner = SandboxRunner.layer.pipe(
    Layer.provideMerge(keep === 0 ? Layer.empty : pool),
    Layer.provide([
      DockerContainerRuntime.layer(),
      FileRunStore.layer({ directory, trafficOf: "unknown" }),
      HostWorkspace.layer({ waiting: join(directory, "waiting") }),
      LlmProxy.layerNoop
    ])
  )
  return HttpRouter.serve(Sandboxes.layer({ image, sandboxesMax, token }), {
    disableListenLog: true,
    disableLogger: true
  }).pipe(
    Layer.provideMerge(runner),
    Layer.provideMerge(NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0 }))
  )
}

const messages = Stream.callback<unknown>((queue) =>
  Effect.sync(() => process.on("message", (message) => Queue.offerUnsafe(queue, message)))
)

const program = Effect.gen(function* () {
  const start = yield* Effect.promise(
    () => new Promise<Start>((resolve) => process.once("message", (message) => resolve(message as Start)))
  )
  const context = yield* Layer.build(layer(start))
  const { address } = Context.get(context, HttpServer.HttpServer)
  const { report } = yield* Effect.provide(SandboxPool.SandboxPool, context)
  process.send?.({ url: HttpServer.formatAddress(address) } satisfies Ready)
  return yield* Stream.runForEach(messages, () =>
    Effect.map(report, ({ hits, removing, waiting }) =>
      process.send?.({ waiting: waiting.length, removing, hits } satisfies Told)
    )
  )
})

NodeRuntime.runMain(Effect.scoped(program))
