/** Reloading a configuration: a valid text replaces the whole configuration, an invalid one is logged. */
import { assert, describe, it } from "@effect/vitest"
import type * as Configuration from "@cogni/sandbox-sessions/config/Configuration"
import * as ConfigurationError from "@cogni/sandbox-sessions/config/ConfigurationError"
import * as ConfigurationStore from "@cogni/sandbox-sessions/config/ConfigurationStore"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { Context, Effect, Fiber, FileSystem, Layer, Logger, References, Stream } from "effect"
import { TestClock } from "effect/testing"
import { execFile } from "node:child_process"
import { promisify } from "node:util"

const textOf = (prompt: string) =>
  `agent_configs: {a: {system_prompt: ${prompt}}}\nrouting: {default_agent: a}\n`

const promptOf = ({ agents }: Configuration.Configuration) => agents.list[0]?.systemPrompt

/** The text that a store reads, set by a test, and the store's log. */
interface World {
  text: string | ConfigurationError.ConfigurationError
  reads: number
  readonly said: Array<string>
}

const withStore = <E>(
  reloadSecondsMax: number | undefined,
  body: (world: World, store: ConfigurationStore.ConfigurationStore["Service"]) => Effect.Effect<void, E>
) =>
  Effect.gen(function* () {
    const world: World = { text: textOf("one"), reads: 0, said: [] }
    const logger = Logger.make<unknown, void>(
      ({ logLevel, message }) => void world.said.push(`${logLevel}: ${String(message)}`)
    )
    yield* Effect.gen(function* () {
      const context = yield* Layer.build(
        ConfigurationStore.layer(
          Effect.suspend(() => {
            world.reads += 1
            return typeof world.text === "string" ? Effect.succeed(world.text) : Effect.fail(world.text)
          }),
          { file: "f.yaml", ...(reloadSecondsMax === undefined ? {} : { reloadSecondsMax }) }
        )
      )
      yield* body(world, Context.get(context, ConfigurationStore.ConfigurationStore))
    }).pipe(Effect.provide(Logger.layer([logger])), Effect.provideService(References.MinimumLogLevel, "All"))
  })

const gone = ConfigurationError.unreadable("f.yaml", "there is no such file", "Write one", true)

describe("a store", () => {
  it.effect("fails without a valid configuration", () =>
    Effect.gen(function* () {
      const failed = (read: Effect.Effect<string, ConfigurationError.ConfigurationError>) =>
        Effect.flip(Layer.build(ConfigurationStore.layer(read, { file: "f.yaml" })))
      assert.include((yield* failed(Effect.succeed("a: 1"))).message, "f.yaml:1:1 a: Unknown key")
      assert.strictEqual(yield* failed(Effect.fail(gone)), gone)
    })
  )

  it.effect("keeps one snapshot until it is reloaded", () =>
    withStore(undefined, (world, { current, reload }) =>
      Effect.gen(function* () {
        const before = yield* current
        world.text = textOf("two")
        yield* TestClock.adjust("1 day")
        assert.strictEqual(yield* current, before)
        const next = yield* reload
        assert.strictEqual(promptOf(next), "two")
        assert.strictEqual(yield* current, next)
        assert.strictEqual(promptOf(before), "one")
      })
    )
  )

  it.effect("keeps its configuration if the new one is invalid or missing, and reports the error", () =>
    withStore(undefined, (world, { current, reload }) =>
      Effect.gen(function* () {
        const before = yield* current
        for (const wrong of ["agent_configs: {a: {}}\n", gone]) {
          world.text = wrong
          const error = yield* Effect.flip(reload)
          assert.strictEqual(error._tag, "ConfigurationError")
          assert.strictEqual(yield* current, before)
          assert.strictEqual(
            world.said.at(-1),
            `Error: ${error.message}. The previous configuration stays in use`
          )
        }
        world.text = textOf("two")
        assert.strictEqual(promptOf(yield* reload), "two")
      })
    )
  )

  it.effect("keeps its snapshot if the text has not changed", () =>
    withStore(undefined, (world, { changes, current, reload }) =>
      Effect.gen(function* () {
        const before = yield* current
        assert.strictEqual(yield* reload, before)
        const seen = yield* changes.pipe(
          Stream.take(2),
          Stream.map(promptOf),
          Stream.runCollect,
          Effect.forkChild
        )
        yield* Effect.yieldNow
        yield* reload
        world.text = textOf("two")
        yield* reload
        assert.deepStrictEqual(yield* Fiber.join(seen), ["one", "two"])
        assert.deepStrictEqual(world.said, [
          "Info: the configuration f.yaml has changed, and is used from now on"
        ])
      })
    )
  )
})

describe("a store that polls its source", () => {
  it.effect("applies a change within the configured time, and never a partial write", () =>
    withStore(10, (world, { current }) =>
      Effect.gen(function* () {
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(world.reads, 13)
        // The text differs at each read, so it may still be incomplete.
        for (const half of ["two", "three", "four"]) {
          world.text = textOf(half)
          yield* TestClock.adjust("5 seconds")
          assert.strictEqual(promptOf(yield* current), "one")
        }
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual(promptOf(yield* current), "four")
        world.text = textOf("five")
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual(promptOf(yield* current), "five")
      })
    )
  )

  it.effect("logs each error once, keeps its configuration, and continues", () =>
    withStore(2, (world, { current, reload }) =>
      Effect.gen(function* () {
        world.text = "agent_configs: {a: {}}\n"
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(promptOf(yield* current), "one")
        assert.lengthOf(world.said, 1)
        assert.include(world.said[0], "Error: the configuration f.yaml is refused")
        world.text = gone
        yield* TestClock.adjust("1 minute")
        assert.lengthOf(world.said, 2)
        assert.include(world.said[1], "there is no such file")
        // An explicit reload reports the error again.
        yield* Effect.flip(reload)
        assert.lengthOf(world.said, 3)
        world.text = textOf("two")
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual(promptOf(yield* current), "two")
        assert.lengthOf(world.said, 4)
        world.text = gone
        yield* TestClock.adjust("2 seconds")
        assert.lengthOf(world.said, 5)
      })
    )
  )

  it.effect("logs an error again if it returns after a valid text", () =>
    withStore(2, (world) =>
      Effect.gen(function* () {
        for (const text of ["wrong", textOf("two"), "wrong", textOf("two")]) {
          world.text = text
          yield* TestClock.adjust("4 seconds")
        }
        assert.lengthOf(
          world.said.filter((said) => said.startsWith("Error")),
          2
        )
      })
    )
  )
})

const inDirectory = <A, E>(
  body: (directory: string, fs: FileSystem.FileSystem) => Effect.Effect<A, E, FileSystem.FileSystem>
) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    return yield* body(yield* fs.makeTempDirectoryScoped(), fs)
  }).pipe(Effect.provide(NodeFileSystem.layer))

describe("a file", () => {
  it.effect("is read as UTF-8, without a byte order mark", () =>
    inDirectory((directory, fs) =>
      Effect.gen(function* () {
        const path = `${directory}/c.yaml`
        yield* fs.writeFileString(path, "\ufeffa: é\n")
        assert.strictEqual(yield* ConfigurationStore.readFile(path), "a: é\n")
      })
    )
  )

  it.effect("that cannot be read fails with the reason", () =>
    inDirectory((directory, fs) =>
      Effect.gen(function* () {
        const path = (name: string) => `${directory}/${name}`
        yield* fs.writeFile(path("latin1"), new Uint8Array([0x61, 0xe9, 0x62]))
        yield* fs.writeFile(path("large"), new Uint8Array(1024 * 1024 + 1).fill(0x23))
        yield* fs.writeFile(path("largest"), new Uint8Array(1024 * 1024).fill(0x23))
        yield* Effect.promise(() => promisify(execFile)("mkfifo", [path("fifo")]))
        const says = (name: string) =>
          Effect.map(Effect.flip(ConfigurationStore.readFile(path(name))), String)
        assert.include(
          yield* says("none"),
          `the configuration ${path("none")} cannot be read: there is no such file`
        )
        assert.include(yield* says("."), "it is a directory")
        assert.include(yield* says("fifo"), "it is a")
        assert.include(yield* says("latin1"), "it is not UTF-8")
        assert.include(yield* says("large"), "more than 1048576 bytes")
        assert.lengthOf(yield* ConfigurationStore.readFile(path("largest")), 1024 * 1024)
      })
    )
  )

  it.effect("a file of a store is named by its path", () =>
    inDirectory((directory, fs) =>
      Effect.gen(function* () {
        const path = `${directory}/c.yaml`
        const build = Effect.map(Layer.build(ConfigurationStore.layerFile(path)), (context) =>
          Context.get(context, ConfigurationStore.ConfigurationStore)
        )
        assert.include((yield* Effect.flip(Effect.scoped(build))).message, `${path} cannot be read`)
        yield* fs.writeFileString(path, textOf("one"))
        const store = yield* build
        assert.strictEqual((yield* store.current).file, path)
        yield* fs.writeFileString(path, "a: 1")
        assert.include((yield* Effect.flip(store.reload)).message, `${path}:1:1 a:`)
      }).pipe(Effect.scoped)
    )
  )
})
