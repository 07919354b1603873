/** The AI SDK's session and loops over a sandbox on a real engine. */
import { assert, layer } from "@effect/vitest"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import { createSandbox } from "@cogni/sandbox-promise"
import { Context, Effect, Layer } from "effect"
import { task } from "../../packages/ai-sdk/test/AgentLoop.ts"
import { promises } from "../../packages/ai-sdk/test/SessionSuite.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/** The sandbox that the tests share. */
class Shared extends Context.Service<Shared, Awaited<ReturnType<typeof createSandbox>>>()("test/Shared") {
  static readonly layer = Layer.effect(
    Shared,
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      return yield* Effect.acquireRelease(
        Effect.promise(() => createSandbox({ stateDirectory, image: Images.runtime })),
        (sandbox) => Effect.promise(() => sandbox.close())
      )
    })
  )
}

const layers = Shared.layer.pipe(
  Layer.provideMerge(
    Layer.unwrap(Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory })))
  ),
  Layer.provideMerge(Layer.merge(DockerApi.layer(), RunHarness.Directory.layer))
)

layer(layers, { excludeTestServices: true })("a session of the AI SDK on Docker", (it) => {
  for (const [title, promise] of Object.entries(promises)) {
    it.effect(title, () => Shared.use((sandbox) => Effect.promise(() => promise(sandbox, true))))
  }

  it.effect("runs the tools of generateText and of an agent in the container", () =>
    Effect.gen(function* () {
      const sandbox = yield* Shared
      yield* Effect.promise(() => task(sandbox, "cat notes/one.txt"))
      const { stdout } = yield* Effect.promise(() => sandbox.exec("ls /sys/class/net"))
      assert.strictEqual(stdout, "lo\n")
    })
  )
})
