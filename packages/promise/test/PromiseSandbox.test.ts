/** The end of a sandbox that has a host of its own. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
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
})
