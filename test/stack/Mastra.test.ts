/** The sandbox and files of Mastra, and its agent loop, on a real engine. */
import { assert, layer } from "@effect/vitest"
import { mastraSandbox } from "@cogni/sandbox-mastra"
import { createSandbox } from "@cogni/sandbox-promise"
import { SandboxError } from "@mastra/core/workspace"
import { Effect } from "effect"
import * as AgentLoop from "../../packages/mastra/test/AgentLoop.ts"
import * as FilesystemSuite from "../../packages/mastra/test/FilesystemSuite.ts"
import * as SandboxSuite from "../../packages/mastra/test/SandboxSuite.ts"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import { SharedSandbox } from "../harness/SharedSandbox.ts"

layer(SharedSandbox.layer, { excludeTestServices: true })("a sandbox of Mastra on Docker", (it) => {
  for (const [title, promise] of Object.entries({
    ...SandboxSuite.promises,
    ...FilesystemSuite.promises,
    ...FilesystemSuite.realPromises
  })) {
    it.effect(title, () => SharedSandbox.use((sandbox) => Effect.promise(() => promise(sandbox, true))))
  }

  it.effect("gives an agent tools for files and commands in the container", () =>
    Effect.gen(function* () {
      const sandbox = yield* SharedSandbox
      yield* Effect.promise(() => AgentLoop.task(sandbox, "cat note.txt; ls /sys/class/net"))
    })
  )

  it.effect("gives an agent background processes, and kills one", () =>
    Effect.gen(function* () {
      const sandbox = yield* SharedSandbox
      const said = yield* Effect.promise(() =>
        AgentLoop.results(sandbox, [
          {
            tool: "mastra_workspace_execute_command",
            input: { command: "echo ready; sleep 1000", background: true }
          },
          { tool: "mastra_workspace_execute_command", input: { command: "ls /sys/class/net; exit 4" } },
          { tool: "mastra_workspace_kill_process", input: { pid: "1" } },
          { tool: "mastra_workspace_get_process_output", input: { pid: "1" } }
        ])
      )
      assert.match(said[0]!, /PID: 1/u)
      assert.match(said[1]!, /lo\\n.*Exit code: 4/u)
      assert.match(said[2]!, /has been killed/u)
      assert.match(said[3]!, /No background process found/u)
    })
  )

  it.effect("reports a sandbox that a limit has ended", () =>
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      yield* Effect.promise(async () => {
        const adapter = mastraSandbox(() =>
          createSandbox({ stateDirectory, image: Images.runtime, limits: { runtimeSecondsMax: 1 } })
        )
        const error = await SandboxSuite.rejected(() => adapter.executeCommand("sleep 1000"))
        assert.instanceOf(error, SandboxError)
        assert.match(String(error), /still running after 1 s/u)
        assert.deepInclude<object>((error as Error).cause as object, { _tag: "SandboxError" })
        await (
          await adapter.opened().catch(() => undefined)
        )?.ended
        assert.strictEqual(adapter.status, "error")
        await adapter.destroy()
      })
    })
  )
})
