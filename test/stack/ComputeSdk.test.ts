/** The provider of `examples/computesdk` with ComputeSDK's own factory, over its server and real Docker. */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import { createServer } from "node:http"
import { cogniSandbox } from "../../examples/computesdk/provider.ts"
import * as Sandboxes from "../../examples/computesdk/Sandboxes.ts"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const token = "a-token-of-this-test"

/** Two providers of a server for two sandboxes: one with its token, and one with another token. */
const served = Effect.gen(function* () {
  const routes = Sandboxes.layer({ image: Images.runtime, token, sandboxesMax: 2 })
  const context = yield* Layer.build(
    HttpRouter.serve(routes, { disableListenLog: true, disableLogger: true }).pipe(
      Layer.provideMerge(NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0 }))
    )
  )
  const url = HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address)
  return { own: cogniSandbox({ url, token }).sandbox, other: cogniSandbox({ url, token: "other" }).sandbox }
})

const refusal = (call: () => Promise<unknown>) =>
  Effect.promise(() =>
    call().then(
      () => "nothing was refused",
      ({ message }: Error) => message
    )
  )

layer(RunHarness.layer(), { excludeTestServices: true })("a sandbox of ComputeSDK", (it) => {
  it.effect("runs commands with its variables until it is destroyed, and leaves nothing behind", () =>
    Effect.gen(function* () {
      const { own } = yield* served
      const sandbox = yield* Effect.promise(() => own.create({ envs: { WORD: "hello" }, timeout: 60_000 }))
      const run = (...call: Parameters<typeof sandbox.runCommand>) =>
        Effect.promise(() => sandbox.runCommand(...call))
      const first = yield* run('node -v; echo "$WORD $OTHER"; pwd >kept; echo said >&2; exit 3', {
        env: { OTHER: "you" },
        cwd: "/tmp"
      })
      assert.match(first.stdout, /^v\d+\.\d+\.\d+\nhello you\n$/u)
      assert.deepStrictEqual([first.exitCode, first.stderr], [3, "said\n"])
      assert.strictEqual((yield* run("cat /tmp/kept")).stdout, "/tmp\n")
      const ids = Effect.promise(async () => (await own.list()).map(({ sandboxId }) => sandboxId))
      assert.deepStrictEqual(yield* ids, [sandbox.sandboxId])
      assert.containSubset(yield* Effect.promise(() => sandbox.getInfo()), {
        status: "running",
        timeout: 60_000
      })
      const found = yield* Effect.promise(() => own.getById(sandbox.sandboxId))
      assert.strictEqual((yield* Effect.promise(() => found!.runCommand("cat /tmp/kept"))).stdout, "/tmp\n")
      yield* Effect.promise(() => sandbox.destroy())
      const runtime = yield* ContainerRuntime
      assert.deepStrictEqual(yield* runtime.leftovers(RunId.make(sandbox.sandboxId)), [])
      assert.deepStrictEqual(yield* ids, [])
      assert.isNull(yield* Effect.promise(() => own.getById(sandbox.sandboxId)))
      assert.include(yield* refusal(() => sandbox.runCommand("true")), "has ended")
      assert.strictEqual((yield* Effect.promise(() => sandbox.getInfo())).status, "stopped")
      // Repeated, like a retry after a lost answer.
      yield* Effect.promise(() => sandbox.destroy())
    }).pipe(Effect.scoped)
  )

  it.effect(
    "is refused without the token, beyond the limit, and for what a sealed sandbox does not have",
    () =>
      Effect.gen(function* () {
        const { other, own } = yield* served
        assert.include(yield* refusal(() => other.create()), "401")
        assert.include(yield* refusal(() => own.create({ image: "debian" })), "one image")
        assert.include(yield* refusal(() => own.create({ timeout: 1e9 })), "400")
        const both = yield* Effect.promise(() => Promise.all([own.create(), own.create()]))
        assert.include(yield* refusal(() => own.create()), "all 2 sandboxes are in use")
        const [sandbox] = both
        assert.include(yield* refusal(() => other.getById(sandbox.sandboxId)), "401")
        assert.include(yield* refusal(() => sandbox.runCommand("true", { background: true })), "nohup")
        assert.include(yield* refusal(() => sandbox.runCommand("true", { onStdout: () => {} })), "onStdout")
        assert.include(yield* refusal(() => sandbox.runCommand("sleep 60", { timeout: 500 })), "422")
        assert.include(yield* refusal(() => sandbox.getUrl({ port: 80 })), "network")
        // The server ends with this scope, and its sandboxes with it.
      }).pipe(Effect.scoped)
  )
})
