import { assert, describe, it } from "@effect/vitest"
import type { OutputChunk } from "../src/RunResult.ts"
import type { Container, ExecExit } from "../src/ContainerRuntime.ts"
import * as SandboxExec from "../src/internal/SandboxExec.ts"
import { type Reason, SandboxError } from "../src/SandboxError.ts"
import { ContainerFailed, OomKilled } from "../src/SandboxReason.ts"
import type { Limits } from "../src/SpecFields.ts"
import { Deferred, Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import type { Broken } from "../src/internal/SandboxGuard.ts"

const engineGone = new ContainerFailed({ operation: "exec", detail: "broke off", remedy: "Look at it" })

const killed: Broken = (partial) => new OomKilled({ memoryBytesMax: 1, partial })

const limits = { memoryBytesMax: 1, processesMax: 1 } as Limits

const quiet: ExecExit = { exitCode: 0, oomKilled: false, processesRefused: false }

/** A command of a container, with the given behaviour. */
const spawned = Effect.fnUntraced(function* (told: {
  readonly exit?: Effect.Effect<ExecExit, ContainerFailed>
  readonly output?: Stream.Stream<OutputChunk, ContainerFailed>
  readonly violated?: Broken
}) {
  const broken = yield* Deferred.make<Broken>()
  const container = {
    exec: () =>
      Effect.succeed({
        output: told.output ?? Stream.empty,
        exit: told.exit ?? Effect.succeed(quiet),
        signal: () => Effect.void
      })
  } as unknown as Container
  const running = yield* SandboxExec.spawn(container, { argv: ["x"], env: {} }, limits, {
    error: (reason: Reason) => new SandboxError({ reason }),
    broken: Deferred.await(broken),
    inspect: () => Effect.void,
    violated: () => told.violated
  })
  return { running, breaks: Deferred.succeed(broken, killed) }
})

describe("SandboxExec", () => {
  it.effect.each([
    { did: { oomKilled: true }, tag: "OomKilled" },
    { did: { processesRefused: true }, tag: "PidsExhausted" }
  ])("fails with the kernel's limit and the exit code: $tag", ({ did, tag }) =>
    Effect.gen(function* () {
      const { running } = yield* spawned({ exit: Effect.succeed({ ...quiet, exitCode: 137, ...did }) })
      const error = yield* Effect.flip(running.exit)
      assert.strictEqual(error.reason._tag, tag)
      assert.strictEqual(error.partial?.exitCode, 137)
    }).pipe(Effect.scoped)
  )

  it.effect("prefers a known violation to the command's exit", () =>
    Effect.gen(function* () {
      const { running } = yield* spawned({ violated: killed })
      assert.strictEqual((yield* Effect.flip(running.exit)).reason._tag, "OomKilled")
    }).pipe(Effect.scoped)
  )

  it.effect("replaces an engine's error by the reason why the sandbox ended, known a moment later", () =>
    Effect.gen(function* () {
      const { breaks, running } = yield* spawned({
        exit: Effect.fail(engineGone),
        output: Stream.fail(engineGone)
      })
      const exit = yield* Effect.forkChild(Effect.flip(running.exit))
      const output = yield* Effect.forkChild(Effect.flip(Stream.runDrain(running.output)))
      yield* TestClock.adjust("4 seconds")
      yield* breaks
      assert.strictEqual((yield* Fiber.join(exit)).reason._tag, "OomKilled")
      assert.strictEqual((yield* Fiber.join(output)).reason._tag, "OomKilled")
    }).pipe(Effect.scoped)
  )

  it.effect("returns the engine's error soon if there is no better reason", () =>
    Effect.gen(function* () {
      const { running } = yield* spawned({ exit: Effect.fail(engineGone) })
      const exit = yield* Effect.forkChild(Effect.flip(running.exit))
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual((yield* Fiber.join(exit)).reason, engineGone)
    }).pipe(Effect.scoped)
  )
})
