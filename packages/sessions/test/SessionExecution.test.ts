/** The executor of a session: chosen once per message, released at its end, and unusable outside of a message. */
import { assert, describe, it } from "@effect/vitest"
import type { SessionExecutor } from "../src/executor/Executors.ts"
import { Deferred, Effect, Fiber, Option, Stream } from "effect"
import * as SessionExecution from "../src/internal/SessionExecution.ts"
import { engineGone, executorOf, type World } from "./RouterWorld.ts"

const worldOf = (): World => ({
  text: "",
  script: () => Effect.succeed(""),
  trouble: undefined,
  log: [],
  said: [],
  inputs: []
})

const make = (world: World, options: Partial<SessionExecution.Options> = {}) =>
  SessionExecution.make({
    key: "k",
    agent: "a",
    place: "sandbox",
    onUnavailable: "refuse",
    executors: {
      sandboxFor: () =>
        Effect.suspend(() =>
          world.trouble === undefined
            ? Effect.acquireRelease(
                Effect.sync((): SessionExecutor => {
                  world.log.push("sandbox")
                  return { ...executorOf(world, "sandbox", "/workspace"), llmSocketPath: "/run/llm.sock" }
                }),
                () => Effect.sync(() => world.log.push("release"))
              )
            : Effect.fail(world.trouble)
        ),
      host: Option.some(executorOf(world, "host", "/srv"))
    },
    ...options
  })

describe("an execution", () => {
  it.effect("opens no sandbox until something executes", () =>
    Effect.gen(function* () {
      const world = worldOf()
      const { during } = make(world)
      const [text, where] = yield* during(Effect.succeed("hello"))
      assert.deepStrictEqual([text, where], ["hello", { executor: "sandbox", fallback: false }])
      assert.deepStrictEqual(world.log, [])
    })
  )

  it.effect("uses one sandbox per message, and releases it when the message ends", () =>
    Effect.gen(function* () {
      const world = worldOf()
      const { bound, during, executor } = make(world)
      yield* during(
        Effect.all(
          [
            executor.exec("1"),
            executor.files.read("2"),
            executor.files.write("3", ""),
            executor.files.list("4"),
            Effect.scoped(Effect.flatMap(executor.spawn("5"), ({ output }) => Stream.runDrain(output)))
          ],
          { concurrency: "unbounded" }
        )
      )
      assert.strictEqual(world.log[0], "sandbox")
      assert.strictEqual(world.log.at(-1), "release")
      assert.lengthOf(world.log, 7)
      world.log.length = 0
      yield* Effect.flip(during(Effect.andThen(executor.exec("1"), Effect.fail("no"))))
      const running = yield* Effect.forkChild(during(Effect.andThen(bound, Effect.never)), {
        startImmediately: true
      })
      yield* Effect.yieldNow
      yield* Fiber.interrupt(running)
      assert.deepStrictEqual(world.log, ["sandbox", "exec 1 sandbox", "release", "sandbox", "release"])
    })
  )

  it.effect("exposes the executor of the message with all its properties", () =>
    Effect.gen(function* () {
      const world = worldOf()
      const { bound, during } = make(world)
      const [found] = yield* during(bound)
      assert.strictEqual(found.llmSocketPath, "/run/llm.sock")
    })
  )

  it.effect("fails outside of a message", () =>
    Effect.gen(function* () {
      const world = worldOf()
      const { during, executor } = make(world)
      yield* during(executor.exec("1"))
      const error = yield* Effect.flip(executor.exec("2"))
      assert.strictEqual(error.reason._tag, "CommandRefused")
      assert.deepStrictEqual(world.log, ["sandbox", "exec 1 sandbox", "release"])
    })
  )

  it.effect("requests an unavailable sandbox again, and reports the reason until it succeeds", () =>
    Effect.gen(function* () {
      const world = worldOf()
      world.trouble = engineGone
      const { during, executor } = make(world)
      const [, refused] = yield* during(
        Effect.andThen(Effect.flip(executor.exec("1")), Effect.flip(executor.exec("2")))
      )
      assert.deepStrictEqual(refused, { executor: "sandbox", fallback: false, why: engineGone.message })
      const [, healed] = yield* during(
        Effect.flip(executor.exec("1")).pipe(
          Effect.tap(() => Effect.sync(() => void (world.trouble = undefined))),
          Effect.andThen(executor.exec("2"))
        )
      )
      assert.deepStrictEqual(healed, { executor: "sandbox", fallback: false })
    })
  )

  it.effect("chooses the place once for concurrent commands", () =>
    Effect.gen(function* () {
      const world = worldOf()
      const gate = yield* Deferred.make<void>()
      const { during, executor } = make(world, {
        onUnavailable: "host",
        executors: {
          // The first request finds no engine; a second one would find it.
          sandboxFor: () =>
            Effect.suspend(() => {
              const isFirst = world.log.length === 0
              world.log.push("asked")
              return isFirst
                ? Effect.andThen(Deferred.await(gate), Effect.fail(engineGone))
                : Effect.succeed(executorOf(world, "sandbox", "/workspace"))
            }),
          host: Option.some(executorOf(world, "host", "/srv"))
        }
      })
      const both = yield* Effect.forkChild(
        during(Effect.all([executor.exec("1"), executor.exec("2")], { concurrency: "unbounded" })),
        { startImmediately: true }
      )
      yield* Effect.yieldNow
      yield* Deferred.succeed(gate, undefined)
      const [, where] = yield* Fiber.join(both)
      assert.deepStrictEqual(where, { executor: "host", fallback: true, why: engineGone.message })
      assert.deepStrictEqual(world.log, ["asked", "exec 1 host", "exec 2 host"])
    })
  )

  it.effect("without a host executor does not execute on the host", () =>
    Effect.gen(function* () {
      const world = worldOf()
      const { during, executor } = make(world, {
        place: "host",
        executors: { sandboxFor: () => Effect.die("unexpected request"), host: Option.none() }
      })
      const [error] = yield* during(Effect.flip(executor.exec("1")))
      assert.include(error.message, "there is no host executor")
    })
  )
})
