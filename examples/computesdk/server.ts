/**
 * Serves sandboxes of this machine's Docker Engine to ComputeSDK: `node examples/computesdk/server.ts --port 8790`.
 *
 *     --port N        port on 127.0.0.1 (default 8790)
 *     --keep N        sandboxes that are started in advance (default 0)
 *     --sandboxes N   sandboxes that exist at one time (default 32)
 *
 * Needs Docker and the runtime image: `./dev setup`. Prints its address and its token as a line of JSON.
 */
import { LlmProxy, SandboxRunner } from "@cogni/sandbox-core"
import { DockerContainerRuntime, FileRunStore, HostSandboxPool, HostWorkspace } from "@cogni/sandbox-docker"
import { NodeHttpServer, NodeRuntime } from "@effect/platform-node"
import { Config, Console, Effect, Layer } from "effect"
import { HttpRouter } from "effect/http"
import { randomBytes } from "node:crypto"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as Sandboxes from "./Sandboxes.ts"

const { values } = parseArgs({
  options: { port: { type: "string" }, keep: { type: "string" }, sandboxes: { type: "string" } }
})
const port = Number(values.port ?? 8790)
const count = Number(values.keep ?? 0)
const sandboxesMax = Number(values.sandboxes ?? 32)
const token = randomBytes(32).toString("base64url")
const directory = join(tmpdir(), "cogni-sandbox-computesdk")

/** Waits for commands, as a sandbox of ComputeSDK does. */
const pool = (image: string) =>
  HostSandboxPool.layer({
    keep: [{ image, count, supervised: true }],
    limits: { sandboxesMax: count }
  })

const server = Layer.unwrap(
  Effect.gen(function* () {
    const image = yield* Config.String("COGNI_RUNTIME_IMAGE").pipe(
      Config.withDefault("cogni-sandbox/runtime:latest")
    )
    const runner = SandboxRunner.layer.pipe(
      Layer.provide(count === 0 ? Layer.empty : pool(image)),
      Layer.provide([
        DockerContainerRuntime.layer(),
        FileRunStore.layer({ directory, trafficOf: "unknown" }),
        HostWorkspace.layer({ waiting: join(directory, "waiting") }),
        // The specs have no model, so the sandboxes have no egress at all.
        LlmProxy.layerNoop
      ])
    )
    return HttpRouter.serve(Sandboxes.layer({ image, token, sandboxesMax }), {
      disableListenLog: true,
      disableLogger: true
    }).pipe(
      Layer.provide(runner),
      Layer.provide(NodeHttpServer.layer(createServer, { host: "127.0.0.1", port }))
    )
  })
)

const program = Effect.gen(function* () {
  yield* Layer.build(server)
  yield* Console.log(JSON.stringify({ url: `http://127.0.0.1:${port}`, token }))
  return yield* Effect.never
})

NodeRuntime.runMain(Effect.scoped(program))
