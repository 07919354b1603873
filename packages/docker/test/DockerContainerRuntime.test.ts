import { assert, it } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Layer } from "effect"
import { hostname, release } from "node:os"
import * as DockerApi from "../src/DockerApi.ts"
import * as DockerContainerRuntime from "../src/DockerContainerRuntime.ts"

const away = new RuntimeUnavailable({ detail: "does not answer", remedy: "Start it" })

it.effect(
  "asks the engine again whether it is on this host, if it did not answer, and then never again",
  () => {
    const answers = [Effect.fail(away), Effect.fail(away)]
    let asked = 0
    const here = { Name: hostname(), KernelVersion: release() } as DockerApi.Info
    const engine = Layer.mock(DockerApi.DockerApi, {
      address: { type: "unix", path: "/nowhere" },
      info: Effect.suspend(() => {
        asked += 1
        return answers.pop() ?? Effect.succeed(here)
      }),
      events: () => Effect.never
    })
    return Effect.gen(function* () {
      const { sharesHost } = yield* ContainerRuntime
      assert.strictEqual((yield* Effect.flip(sharesHost))._tag, "RuntimeUnavailable")
      assert.strictEqual((yield* Effect.flip(sharesHost))._tag, "RuntimeUnavailable")
      assert.isTrue(yield* sharesHost)
      assert.isTrue(yield* sharesHost)
      assert.strictEqual(asked, 3)
    }).pipe(Effect.provide(Layer.provide(DockerContainerRuntime.layerApi(), engine)))
  }
)
