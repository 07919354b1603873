/** The backend of deepagents on a real engine: its whole contract, and the framework's agent loop. */
import { assert, layer } from "@effect/vitest"
import { AIMessage, ToolMessage } from "@langchain/core/messages"
import { fakeModel } from "@langchain/core/testing"
import { deepAgentsBackend, type DeepAgentsOptions } from "@cogni/sandbox-deepagents"
import { createSandbox, type Sandbox } from "@cogni/sandbox-promise"
import { createDeepAgent, SandboxError as BackendError } from "deepagents"
import { Context, Effect, Layer } from "effect"
import * as BackendContract from "../../packages/deepagents/test/BackendContract.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/** One sandbox for all cases: they use directories of their own. */
class Opened extends Context.Service<Opened, Sandbox>()("test/DeepAgents/Opened") {
  static readonly layer = Layer.effect(
    Opened,
    Effect.flatMap(RunHarness.Directory, (stateDirectory) =>
      Effect.acquireRelease(
        Effect.promise(() => createSandbox({ stateDirectory, image: Images.runtime })),
        (sandbox) => Effect.promise(sandbox.close)
      )
    )
  )
}

const layers = Opened.layer.pipe(
  Layer.provideMerge(
    Layer.unwrap(Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory })))
  ),
  Layer.provideMerge(Layer.merge(Engine.api(), RunHarness.Directory.layer))
)

layer(layers, { excludeTestServices: true })("deepagents", (it) => {
  // The workspace is a directory of the host. `/tmp` is memory of the container, which only commands reach.
  for (const place of ["/workspace", "/tmp"]) {
    BackendContract.cases.forEach(({ check, title }, index) =>
      it.effect(`in ${place}, ${title}`, () =>
        Effect.flatMap(Opened, (sandbox) =>
          Effect.promise(() =>
            check({
              backend: deepAgentsBackend(sandbox),
              backendWith: (options) => deepAgentsBackend(sandbox, options),
              directory: `${place}/case-${index}`
            })
          )
        )
      )
    )
  }

  it.effect("the framework's agent works in the sandbox with all its tools", () =>
    Effect.gen(function* () {
      const sandbox = yield* Opened
      const directory = `${sandbox.workspace}/agent`
      const file_path = `${directory}/main.js`
      const model = fakeModel()
        .respondWithTools([{ name: "write_file", args: { file_path, content: "console.log(6 * 6)\n" } }])
        .respondWithTools([{ name: "read_file", args: { file_path } }])
        .respondWithTools([
          { name: "edit_file", args: { file_path, old_string: "6 * 6", new_string: "6 * 7" } }
        ])
        .respondWithTools([
          { name: "execute", args: { command: `node ${file_path}; ls /sys/class/net; exit 3` } }
        ])
        .respondWithTools([
          { name: "ls", args: { path: directory } },
          { name: "grep", args: { pattern: "6 * 7", path: directory } },
          { name: "glob", args: { pattern: "*.js", path: directory } }
        ])
        .respondWithTools([{ name: "delete", args: { file_path } }])
        .respondWithTools([{ name: "read_file", args: { file_path } }])
        .respond(new AIMessage("done"))
      const agent = createDeepAgent({ model, backend: deepAgentsBackend(sandbox) })
      const { messages } = yield* Effect.promise(() =>
        agent.invoke({ messages: [{ role: "user", content: "Compute six times seven." }] })
      )
      const said = messages
        .filter((message) => ToolMessage.isInstance(message))
        .map((message) => [message.name, message.text] as const)
      const expected: ReadonlyArray<readonly [string, RegExp]> = [
        ["write_file", /Successfully wrote/u],
        ["read_file", /console\.log\(6 \* 6\)/u],
        ["edit_file", /replaced 1 occurrence/u],
        ["execute", /^42\nlo\n\n\[Command failed with exit code 3\]$/u],
        ["ls", /main\.js/u],
        ["grep", /6 \* 7/u],
        ["glob", /^main\.js$/u],
        ["delete", /^Deleted /u],
        ["read_file", /not found/u]
      ]
      assert.deepStrictEqual(
        said.map(([name]) => name),
        expected.map(([name]) => name)
      )
      expected.forEach(([, pattern], index) => assert.match(said[index]![1], pattern))
      assert.strictEqual(messages.at(-1)?.text, "done")
    })
  )

  it.effect("an agent gets a broken limit of a command as its result, and goes on", () =>
    Effect.gen(function* () {
      const sandbox = yield* Opened
      const said = (command: string, options?: DeepAgentsOptions) =>
        Effect.promise(async () => {
          const model = fakeModel()
            .respondWithTools([{ name: "execute", args: { command } }])
            .respond(new AIMessage("done"))
          const agent = createDeepAgent({ model, backend: deepAgentsBackend(sandbox, options) })
          const { messages } = await agent.invoke({ messages: [{ role: "user", content: "Go." }] })
          assert.strictEqual(messages.at(-1)?.text, "done")
          return messages.find((message) => ToolMessage.isInstance(message))!.text
        })
      assert.match(
        yield* said("sleep 1000", { timeoutSecondsMax: 1 }),
        /still running after 1 s[\s\S]*exit code 124/u
      )
      const long = yield* said("yes | head -c 1000000")
      assert.match(long, /exit code 0\]\n\[Output was truncated/u)
      assert.isBelow(long.length, 80_000)
    })
  )

  it.effect("calls reject with the framework's error when the sandbox has ended by a limit", () =>
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      const error = yield* Effect.promise(async () => {
        await using sandbox = await createSandbox({
          stateDirectory,
          image: Images.runtime,
          limits: { runtimeSecondsMax: 1 }
        })
        const backend = deepAgentsBackend(sandbox)
        const waited = await Promise.resolve(backend.execute("sleep 1000")).then(
          () => undefined,
          (thrown: unknown) => thrown
        )
        await sandbox.ended
        assert.isFalse(backend.isRunning)
        return waited
      })
      if (!BackendError.isInstance(error)) return assert.fail(String(error))
      assert.strictEqual(error.code, "COMMAND_FAILED")
      assert.deepInclude<object | undefined>(error.cause, { _tag: "SandboxError" })
      assert.match(error.message, /still running after 1 s/u)
    })
  )
})
