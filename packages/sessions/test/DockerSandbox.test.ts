import { assert, describe, it } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as ProcessTable from "../../loop/src/ProcessTable.ts"
import { Effect, Layer, Logger, References } from "effect"
import { TestClock } from "effect/testing"
import * as DockerSandbox from "../src/sandbox/DockerSandbox.ts"
import * as SessionId from "../src/sandbox/SessionId.ts"

const program: Program = ({ argv, files, stdout }) =>
  argv[0] === "note"
    ? files
        .write(".cogni/index.json", JSON.stringify({ version: 1, summary: argv[1] }))
        .pipe(Effect.orDie, Effect.as(0))
    : argv.at(-1) === "hang"
      ? Effect.never
      : Effect.as(stdout(argv.join(" ")), 0)

const memory = DockerSandbox.layer.pipe(Layer.provideMerge(SandboxRunner.layerMemory({ program })))

const create = (options: Partial<DockerSandbox.CreateOptions> = {}) =>
  Effect.gen(function* () {
    const sandboxes = yield* DockerSandbox.DockerSandbox
    return yield* sandboxes.create({
      sessionId: yield* SessionId.decode("telegram:1:coder"),
      settings: { image: "memory" },
      workspace: { type: "temporary" },
      ...options
    })
  })

const leftovers = (sandbox: DockerSandbox.SessionSandbox) =>
  ContainerRuntime.use((runtime) => runtime.leftovers(sandbox.runId))

describe("DockerSandbox", () => {
  it.effect("runs commands, reports that it is running, and ends with its scope", () =>
    Effect.gen(function* () {
      const sandbox = yield* Effect.scoped(
        Effect.gen(function* () {
          const made = yield* create()
          assert.strictEqual(made.sessionId, "telegram:1:coder")
          assert.isTrue(yield* made.isRunning)
          assert.strictEqual((yield* made.exec(["a", "b"])).output.stdout.text, "a b")
          assert.isNotEmpty(yield* leftovers(made))
          return made
        })
      )
      assert.isFalse(yield* sandbox.isRunning)
      assert.deepStrictEqual(yield* leftovers(sandbox), [])
      assert.strictEqual((yield* RunStore.use((store) => store.get(sandbox.runId)))?.outcome.status, "closed")
    }).pipe(Effect.provide(memory))
  )

  it("shortens long names to identifiers that differ", () => {
    const long = "7".repeat(300)
    assert.strictEqual(SessionId.identifierOf("telegram:1"), "telegram:1")
    assert.strictEqual(SessionId.identifierOf(long).length, 200)
    assert.notStrictEqual(SessionId.identifierOf(`${long}1`), SessionId.identifierOf(`${long}2`))
    assert.isTrue(SessionId.identifierOf(`${"a".repeat(166)}${"\u{1f600}".repeat(100)}`).isWellFormed())
  })

  it.effect("destroy ends the sandbox and its running commands", () =>
    Effect.gen(function* () {
      const sandbox = yield* create()
      const hanging = yield* Effect.forkChild(Effect.exit(sandbox.exec(["hang"])))
      yield* TestClock.adjust("1 second")
      yield* sandbox.destroy
      yield* sandbox.destroy
      assert.deepStrictEqual(yield* leftovers(sandbox), [])
      assert.isFalse(yield* sandbox.isRunning)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(hanging.pollUnsafe()?._tag, "Success", "the command still waits")
    }).pipe(Effect.scoped, Effect.provide(memory))
  )

  it.effect("logs when a sandbox opens, when it is closed, and why it ended early", () =>
    Effect.gen(function* () {
      const logged: Array<string> = []
      const logger = Logger.make<unknown, void>(({ message }) => void logged.push(String(message)))
      const [closed, expired] = yield* Effect.gen(function* () {
        const closed = yield* create()
        yield* closed.destroy
        const expired = yield* create({ settings: { image: "memory", limits: { runtimeSecondsMax: 5 } } })
        yield* TestClock.adjust("6 seconds")
        assert.isFalse(yield* expired.isRunning)
        return [closed, expired] as const
      }).pipe(
        Effect.provide(Logger.layer([logger])),
        Effect.provideService(References.MinimumLogLevel, "Info")
      )
      const nameOf = ({ runId }: DockerSandbox.SessionSandbox) =>
        `the sandbox ${runId} of the session "telegram:1:coder"`
      assert.deepStrictEqual(logged, [
        `${nameOf(closed)} is open`,
        `${nameOf(closed)} is closed`,
        `${nameOf(expired)} is open`,
        `${nameOf(expired)} ended, because its lifetime of 5 s is over`
      ])
    }).pipe(Effect.scoped, Effect.provide(memory))
  )

  it.effect("keeps the agent's notes on a workspace for its next container", () =>
    Effect.gen(function* () {
      const workspace = { type: "directory", path: "/sessions/a" } as const
      assert.isUndefined(
        yield* Effect.scoped(
          Effect.gen(function* () {
            const first = yield* create({ workspace })
            const before = yield* first.memory
            yield* first.exec(["note", "a parser"])
            return before
          })
        )
      )
      const second = yield* create({ workspace })
      assert.deepStrictEqual(yield* second.memory, { version: 1, summary: "a parser" })
    }).pipe(Effect.scoped, Effect.provide(memory))
  )

  it.effect("runs background processes, which end with it", () =>
    Effect.gen(function* () {
      const sandbox = yield* create()
      const processes = yield* ProcessTable.make(sandbox)
      const { processId } = yield* processes.start({ command: "hang" })
      assert.deepStrictEqual(
        (yield* processes.list).map((process) => [process.processId, process.state]),
        [[processId, "running"]]
      )
      yield* sandbox.destroy
      assert.deepStrictEqual(yield* leftovers(sandbox), [])
      assert.strictEqual((yield* processes.wait(processId, 1)).state, "ended")
      const error = yield* Effect.flip(processes.start({ command: "hang" }))
      assert.strictEqual(error._tag, "SandboxError")
    }).pipe(Effect.scoped, Effect.provide(memory))
  )

  it.effect("refuses invalid settings, with their problems", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        create({ settings: { image: "memory", limits: { memoryBytesMax: 1 } } })
      )
      assert.strictEqual("reason" in error && error.reason._tag, "InvalidSpec")
      assert.include(error.message, "memoryBytesMax")
    }).pipe(Effect.scoped, Effect.provide(memory))
  )
})
