/** The Promise API on a real engine: a sandbox, a run, an agent, cancellation, and nothing left behind. */
import { assert, layer } from "@effect/vitest"
import { Ledger } from "@cogni/sandbox-ledger"
import { createHost, createSandbox, runnerPort, SandboxError } from "@cogni/sandbox-promise"
import { Effect, Layer } from "effect"
import { chownSync } from "node:fs"
import * as CliWorld from "../harness/CliWorld.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const layers = Layer.unwrap(
  Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory }))
).pipe(Layer.provideMerge(Layer.merge(Engine.api(), RunHarness.Directory.layer)))

layer(layers, { excludeTestServices: true })("Promises", (it) => {
  it.effect("open a sealed container, run commands in it, and remove it", () =>
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      const said = yield* Effect.promise(async () => {
        await using sandbox = await createSandbox({ stateDirectory, image: Images.runtime })
        await sandbox.files.write("word", "hello")
        const { stdout } = await sandbox.exec("cat word; id -u; ls /sys/class/net")
        const abort = new AbortController()
        await using sleep = await sandbox.spawn(["sh", "-c", "echo begun; sleep 1000"])
        for await (const _piece of sleep.output) break
        const waiting = sandbox.exec(["sleep", "1000"], { signal: abort.signal })
        abort.abort("enough")
        const reason = await waiting.then(
          () => "ended",
          (error: unknown) => error
        )
        return {
          stdout,
          reason,
          after: (await sandbox.exec("cat /proc/[0-9]*/comm | grep -cx sleep")).stdout
        }
      })
      assert.deepStrictEqual(said, { stdout: "hello1000\nlo\n", reason: "enough", after: "1\n" })
    })
  )

  it.effect("keep the files of a workspace between commands of one run ID", () =>
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      const workspacePath = yield* CliWorld.directory
      if (process.getuid?.() === 0) chownSync(workspacePath, 1000, 1000)
      yield* Effect.promise(async () => {
        await using host = createHost({ stateDirectory, ...Engine.runtime })
        const { execCommand } = runnerPort({
          run: host.run,
          createSandbox: (options) => host.createSandbox({ ...options, image: Images.runtime })
        })
        const limits = { maxRuntimeSec: 600, maxMemoryMb: 256 }
        const execute = (command: Parameters<typeof execCommand>[0]["command"]) =>
          execCommand({ runId: "run-port-docker", workspacePath, limits, command })
        const write = { type: "write", args: { path: "a.txt", content: "a" } } as const
        assert.deepStrictEqual(await execute(write), { ok: true })
        const exec = { type: "exec", args: { command: "cat a.txt; echo why >&2; exit 2" } } as const
        assert.deepStrictEqual(await execute(exec), {
          ok: false,
          output: "a\nwhy\nthe command ended with exit code 2",
          errorCode: "command_failed"
        })
      })
    })
  )

  it.effect("run a command and an agent on one host, and keep the key out of it", () =>
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      const { received, url } = yield* ModelApi.acquire
      const key = "sk-planted-promise-key"
      const ledger = yield* Ledger.makeMemory()
      yield* Effect.promise(async () => {
        await using host = createHost({
          ...Engine.runtime,
          stateDirectory,
          upstream: { url, key, image: Images.gateway },
          ledger: Layer.succeed(Ledger.Ledger, ledger)
        })
        const llm = { model: "m", identity: { billingAccountId: "acme" } }
        const image = Images.runtime
        const [listed, { result, text }] = await Promise.all([
          host.run({ image, argv: ["sh", "-c", "env; cat /proc/*/environ"], llm }),
          host.runAgent("agent", { image, prompt: "How is the weather?", llm })
        ])
        assert.strictEqual(text, "It is sunny in Oslo.")
        assert.strictEqual(result.llm?.usage?.outputTokens, 5)
        assert.notInclude(JSON.stringify([listed, result]), key)
        const error = await host
          .run({ image, argv: ["sleep", "1000"], limits: { runtimeSecondsMax: 1 } })
          .catch((thrown: unknown) => thrown)
        assert.instanceOf(error, SandboxError)
        assert.strictEqual((error as SandboxError).reason._tag, "TimedOut")
      })
      const { entries } = yield* ledger.list({})
      assert.strictEqual(entries.length, (yield* received).length)
      assert.deepInclude(entries[0], { billingAccountId: "acme", upstream: "litellm" })
      const [call] = yield* received
      assert.deepInclude(Object.fromEntries(call!.headers), { authorization: `Bearer ${key}` })
    })
  )
})
