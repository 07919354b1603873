/** The two networks of a sandbox: none, and an internal one without egress. */
import { assert, layer } from "@effect/vitest"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect } from "effect"
import { container, docker, internalNetwork } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const server = "require('http').createServer((q,s)=>s.end('reached')).listen(4000)"

const get = (url: string) =>
  `fetch(${JSON.stringify(url)},{signal:AbortSignal.timeout(60000)}).then(r=>r.text()).then(console.log,e=>console.log('failed',e.cause?.code))`

layer(RunHarness.layer(), { excludeTestServices: true })("network", (it) => {
  it.effect("a sandbox on an internal network reaches its neighbour, and no other network", () =>
    Effect.gen(function* () {
      const networkName = yield* internalNetwork(`cogni-test-${process.pid}-in`)
      yield* container(
        "--network",
        networkName,
        "--network-alias",
        "neighbour",
        "--entrypoint",
        "node",
        Images.runtime,
        "-e",
        server
      )
      const runner = yield* SandboxRunner
      const near = yield* runner.run({
        image: Images.runtime,
        argv: ["node", "-e", get("http://neighbour:4000")],
        network: { mode: "internal", networkName }
      })
      assert.strictEqual(near.output.stdout.text.trim(), "reached")
      assert.isAbove(near.posture.interfaces.length, 1)
      const far = yield* container("--entrypoint", "node", Images.runtime, "-e", server)
      const address = yield* docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", far)
      const other = `http://${address}:4000`
      assert.strictEqual(
        yield* docker("run", "--rm", "--entrypoint", "node", Images.runtime, "-e", get(other)),
        "reached",
        "the server is reachable from a container with a route"
      )
      const { output } = yield* runner.run({
        image: Images.runtime,
        argv: ["node", "-e", get(other)],
        network: { mode: "internal", networkName }
      })
      assert.match(output.stdout.text, /^failed/u)
    })
  )

  it.effect("fails if a network does not exist, with the command that creates it", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const error = yield* Effect.flip(
        runner.run({
          image: Images.runtime,
          argv: ["true"],
          network: { mode: "internal", networkName: "cogni-absent" }
        })
      )
      assert.strictEqual(error.reason._tag, "ContainerFailed")
      assert.include(error.message, "docker network create --internal cogni-absent")
    })
  )

  it.effect("refuses a network with egress", () =>
    Effect.gen(function* () {
      const networkName = `cogni-test-${process.pid}-wide`
      yield* Effect.acquireRelease(docker("network", "create", networkName), () =>
        docker("network", "rm", networkName)
      )
      const runner = yield* SandboxRunner
      for (const name of [networkName, "bridge", "host"]) {
        const error = yield* Effect.flip(
          runner.run({
            image: Images.runtime,
            argv: ["true"],
            network: { mode: "internal", networkName: name }
          })
        )
        assert.strictEqual(error.reason._tag, "ContainerFailed", name)
        assert.include(error.message, "route out")
      }
    })
  )
})
