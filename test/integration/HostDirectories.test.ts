/**
 * A workspace is a directory, not a path. An agent that swaps, links or leaves something on that path cannot reach any
 * other directory of the host.
 */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { layerNoop } from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { Deferred, Effect, Fiber, Logger, Stream } from "effect"
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/** Creates directories that an agent may work in, and a private one with a secret. */
const scene = Effect.map(RunHarness.Directory, (within) => {
  const root = mkdtempSync(join(within, "scene-"))
  const make = (name: string) => {
    const path = join(root, name)
    mkdirSync(path, { recursive: true })
    chownSync(path, 1000, 1000)
    return path
  }
  const secret = make("private")
  writeFileSync(join(secret, "secret"), "TOPSECRET-of-host\n", { mode: 0o644 })
  chmodSync(root, 0o755)
  return { root, secret, make }
})

const shell = (path: string, script: string) => ({
  image: Images.runtime,
  argv: ["sh", "-c", script] as const,
  workspace: { type: "directory" as const, path }
})

/** Runner that calls `change` after the check of the workspace, and before the engine mounts it. */
const runnerThatChanges = (change: () => void) =>
  Effect.gen(function* () {
    const runtime = yield* ContainerRuntime
    return yield* SandboxRunner.make.pipe(
      Effect.provideService(ContainerRuntime, {
        ...runtime,
        acquire: (spec) => Effect.andThen(Effect.sync(change), runtime.acquire(spec))
      }),
      Effect.provide(layerNoop)
    )
  })

layer(RunHarness.layer(), { excludeTestServices: true })("directories of the host", (it) => {
  /** Asserts that the agent does not start, and that the other directory is neither read nor changed. */
  const refusesExchange = (put: (secret: string, path: string) => void) =>
    Effect.gen(function* () {
      const { make, root, secret } = yield* scene
      const path = make("mono/pkg")
      const runner = yield* runnerThatChanges(() => {
        renameSync(path, join(root, "mono/was-pkg"))
        put(secret, path)
      })
      const { message, reason } = yield* Effect.flip(runner.run(shell(path, "cat secret; echo > stolen")))
      assert.strictEqual(reason._tag, "PostureMismatch", message)
      assert.match(message, /\/workspace is another directory .* its path was changed meanwhile/u)
      // The engine creates an empty mount point for the inputs in any directory that it mounts, before the check.
      assert.deepStrictEqual(readdirSync(path).toSorted(), [".cogni", "secret"])
      assert.deepStrictEqual(readdirSync(join(path, ".cogni")), [])
    })

  it.effect("does not start an agent if the workspace was replaced with a link before the mount", () =>
    refusesExchange(symlinkSync)
  )

  it.effect(
    "does not start an agent if the workspace was replaced with another directory before the mount",
    () => refusesExchange(renameSync)
  )

  it.effect("does not start an agent if its inputs were replaced before the mount", () =>
    Effect.gen(function* () {
      const { root, secret } = yield* scene
      const within = yield* RunHarness.Directory
      const runId = yield* RunId.generate
      const inputs = join(within, "runs", runId, "inputs")
      const runner = yield* runnerThatChanges(() => {
        renameSync(inputs, join(root, "was-inputs"))
        symlinkSync(secret, inputs)
      })
      const { message, reason } = yield* Effect.flip(
        runner.run({ runId, image: Images.runtime, argv: ["cat", "/cogni/secret"] })
      )
      assert.strictEqual(reason._tag, "PostureMismatch", message)
      assert.include(message, "/cogni is another directory")
    })
  )

  it.effect("refuses a workspace below a link that an agent could have made, and names the link", () =>
    Effect.gen(function* () {
      const { make, root, secret } = yield* scene
      const runner = yield* SandboxRunner.SandboxRunner
      const outer = make("W")
      make("private/src")
      yield* runner.run(shell(outer, `ln -s ${secret} docs`))
      const { message, reason } = yield* Effect.flip(
        runner.run(shell(join(outer, "docs/src"), "pwd; echo > stolen"))
      )
      assert.strictEqual(reason._tag, "WorkspaceFailed", message)
      assert.include(message, `passes through ${join(root, "W/docs")}, a symbolic link`)
      assert.deepStrictEqual(readdirSync(join(secret, "src")), [])
    })
  )

  it.effect("refuses a workspace inside or around one that is in use, until that run is over", () =>
    Effect.gen(function* () {
      const { make, secret } = yield* scene
      const runner = yield* SandboxRunner.SandboxRunner
      const outer = make("mono")
      const inner = make("mono/pkg")
      const begun = yield* Deferred.make<void>()
      const agent = yield* runner
        .stream(shell(outer, "echo begun; until [ -e end ]; do sleep 0.05; done"))
        .pipe(
          Stream.runForEach((event) =>
            event._tag === "OutputReceived" ? Deferred.succeed(begun, undefined) : Effect.void
          ),
          Effect.forkScoped
        )
      yield* Deferred.await(begun)
      const within = yield* Effect.flip(runner.run(shell(inner, "true")))
      assert.strictEqual(within.reason._tag, "WorkspaceFailed", within.message)
      assert.match(within.message, /lies in .*\/mono, in which run run-\w+ works/u)
      assert.isFalse(existsSync(join(inner, ".cogni")), "it is refused before anything is created in it")
      const around = yield* Effect.flip(runner.run(shell(join(outer, ".."), "true")))
      assert.strictEqual(around.reason._tag, "WorkspaceFailed", around.message)
      const same = yield* runner.run(shell(outer, "touch end"))
      assert.strictEqual(same.exitCode, 0, "the same directory may be shared")
      yield* Fiber.join(agent)
      const after = yield* runner.run(shell(inner, "ls -a"))
      assert.notInclude(after.output.stdout.text, "secret")
      assert.isTrue(existsSync(join(secret, "secret")))
    })
  )

  it.effect("warns of a host socket in the workspace before the agent starts", () =>
    Effect.gen(function* () {
      const { make } = yield* scene
      const path = make("project")
      yield* Effect.acquireRelease(
        Effect.promise(
          () =>
            new Promise<ReturnType<typeof createServer>>((resolve) => {
              const server = createServer((socket) => socket.end("host service\n"))
              server.listen(join(path, "db.sock"), () => {
                chmodSync(join(path, "db.sock"), 0o666)
                resolve(server)
              })
            })
        ),
        (server) => Effect.sync(() => server.close())
      )
      const heard = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
        Effect.gen(function* () {
          const said: Array<string> = []
          const logger = Logger.make(({ message }) => void said.push(String(message)))
          const value = yield* Effect.provide(effect, Logger.layer([logger]))
          assert.include(said.join("\n"), 'the workspace holds socket "db.sock"')
          return value
        })
      const runner = yield* SandboxRunner.SandboxRunner
      const { argv, ...opened } = shell(path, "socat -u UNIX-CONNECT:/workspace/db.sock -")
      const result = yield* heard(runner.run({ ...opened, argv }))
      assert.strictEqual(result.output.stdout.text, "host service\n", "the agent cannot reach the service")
      yield* heard(Effect.scoped(runner.open(opened)))
    })
  )
})
