/** The two locations of a model: on the host, and in a container on an internal network. */
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import type { Upstream } from "@cogni/sandbox-proxy/Upstream"
import type Docker from "dockerode"
import { Effect, type Scope } from "effect"

export const onHost: Effect.Effect<Upstream, never, Scope.Scope> = Effect.map(
  DemoUpstream.acquire(),
  ({ url }): Upstream => ({ type: "host", url: url })
)

const program = `require("node:http").createServer((request, response) => response.end("{}")).listen(4000, "0.0.0.0")`

/** Creates a network and a container, and removes both with the scope. */
export const inContainer = (docker: Docker, image: string): Effect.Effect<Upstream, never, Scope.Scope> =>
  Effect.gen(function* () {
    const networkName = `cogni-bench-${process.pid}`
    yield* Effect.acquireRelease(
      Effect.promise(() => docker.createNetwork({ Name: networkName, Internal: true })),
      (network) => Effect.promise(() => network.remove())
    )
    yield* Effect.acquireRelease(
      Effect.promise(async () => {
        const container = await docker.createContainer({
          name: `${networkName}-upstream`,
          Image: image,
          Entrypoint: ["node", "-e", program],
          HostConfig: { NetworkMode: networkName, Init: true }
        })
        await container.start()
        return container
      }),
      (container) => Effect.promise(() => container.remove({ force: true }))
    )
    return { type: "container", url: `http://${networkName}-upstream:4000`, networkName }
  })
