import { assert, describe, it } from "@effect/vitest"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type { Inspected } from "../src/DockerApi.ts"
import * as RunName from "../src/internal/container/RunName.ts"

const slow = new RuntimeUnavailable({ detail: "did not answer within 30 s", remedy: "Check its load" })

const inspected = (Id: string): Inspected => ({
  Id,
  Name: "/cogni-run-1-agent",
  Image: "sha256:one",
  HostConfig: {},
  Config: { Labels: {}, User: "1000:1000" },
  State: { Status: "running", Running: true, OOMKilled: false, Pid: 7, ExitCode: 0 }
})

/** Renames against an engine whose first answers are these, then `undefined` for success. */
const renamed = Effect.fnUntraced(function* (
  failures: ReadonlyArray<ContainerError>,
  holder: Inspected | undefined
) {
  const failed: Array<ContainerError> = []
  let asked = 0
  const rename = Effect.suspend(() => {
    const failure = failures[asked++]
    return failure === undefined ? Effect.void : Effect.fail(failure)
  })
  const fiber = yield* Effect.forkChild(
    RunName.give(
      { rename: () => rename, inspect: () => Effect.succeed(holder) },
      { id: "mine", name: "cogni-run-1-agent", fail: (error) => Effect.sync(() => void failed.push(error)) }
    )
  )
  yield* TestClock.adjust("5 minutes")
  yield* Fiber.join(fiber)
  return { asked, failed }
})

describe("RunName", () => {
  it.effect("tries again if the engine fails, and never ends the run for that", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* renamed([], undefined), { asked: 1, failed: [] })
      assert.deepStrictEqual(yield* renamed([slow, slow], undefined), { asked: 3, failed: [] })
      assert.deepStrictEqual(
        yield* renamed(
          Array.from({ length: 20 }, () => slow),
          undefined
        ),
        {
          asked: 7,
          failed: []
        }
      )
    })
  )

  it.effect("leaves the engine alone until the program has had a moment", () =>
    Effect.gen(function* () {
      let asked = 0
      const rename = () => Effect.sync(() => void (asked += 1))
      const inspect = () => Effect.undefined
      const names = { id: "mine", name: "cogni-run-1-agent", fail: () => Effect.void }
      const fiber = yield* Effect.forkChild(RunName.give({ rename, inspect }, names))
      yield* TestClock.adjust(RunName.aloneMillis - 1)
      assert.strictEqual(asked, 0)
      yield* TestClock.adjust(1)
      yield* Fiber.join(fiber)
      assert.strictEqual(asked, 1)
    })
  )

  it.effect("is done if the engine renamed it without an answer", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* renamed([slow], inspected("mine")), { asked: 1, failed: [] })
    })
  )

  it.effect("ends the run if another container has its name", () =>
    Effect.gen(function* () {
      const { asked, failed } = yield* renamed([slow], inspected("other"))
      assert.strictEqual(asked, 1)
      assert.include(failed[0]?.message, "the name cogni-run-1-agent is in use")
    })
  )
})
