/** The end of a sandbox that has a host of its own. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Stream } from "effect"
import * as HostRuntime from "../src/internal/HostRuntime.ts"
import * as PromiseSandbox from "../src/internal/PromiseSandbox.ts"

describe("PromiseSandbox", () => {
  it("closes its own host although its release fails, and rejects with that failure", async () => {
    const runtime = HostRuntime.make(Layer.empty)
    const failing = new Error("the release failed")
    let isHostClosed = false
    const sandbox = PromiseSandbox.make(
      runtime,
      { value: { files: {}, ended: Effect.never } as never, close: () => Promise.reject(failing) },
      async () => {
        isHostClosed = true
        await runtime.close()
      }
    )
    assert.strictEqual(await sandbox.close().catch((error: unknown) => error), failing)
    assert.isTrue(isHostClosed)
  })

  it("releases processes that were not disposed of when it closes", async () => {
    const runtime = HostRuntime.make(Layer.empty)
    const all = Promise.withResolvers<void>()
    let released = 0
    const release = () => {
      if (++released === 2) all.resolve()
    }
    const spawn = () =>
      Effect.as(
        Effect.acquireRelease(Effect.void, () => Effect.sync(release)),
        { output: Stream.empty, exit: Effect.succeed({ exitCode: 0 }), signal: () => Effect.void }
      )
    const sandbox = PromiseSandbox.make(runtime, {
      value: { files: {}, ended: Effect.never, spawn } as never,
      close: async () => undefined
    })
    const process = await sandbox.spawn(["true"])
    const other = await sandbox.spawn(["true"])
    assert.strictEqual((await process.exit).exitCode, 0)
    await other[Symbol.asyncDispose]()
    assert.strictEqual(released, 1)
    await sandbox.close()
    await all.promise
    await runtime.close()
    assert.strictEqual(released, 2)
  })
})
