/** The AI SDK's session and loops over a sandbox on a real engine. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { task } from "../../packages/ai-sdk/test/AgentLoop.ts"
import { promises } from "../../packages/ai-sdk/test/SessionSuite.ts"
import { SharedSandbox } from "../harness/SharedSandbox.ts"

layer(SharedSandbox.layer, { excludeTestServices: true })("a session of the AI SDK on Docker", (it) => {
  for (const [title, promise] of Object.entries(promises)) {
    it.effect(title, () => SharedSandbox.use((sandbox) => Effect.promise(() => promise(sandbox, true))))
  }

  it.effect("runs the tools of generateText and of an agent in the container", () =>
    Effect.gen(function* () {
      const sandbox = yield* SharedSandbox
      yield* Effect.promise(() => task(sandbox, "cat notes/one.txt"))
      const { stdout } = yield* Effect.promise(() => sandbox.exec("ls /sys/class/net"))
      assert.strictEqual(stdout, "lo\n")
    })
  )
})
