/** The end of a host: what it waits for, and what it releases although something fails. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { setImmediate } from "node:timers/promises"
import { Closed } from "../src/Closed.ts"
import * as HostRuntime from "../src/internal/HostRuntime.ts"

/** A runtime that records the release of its own layer. */
const world = () => {
  const released: Array<string> = []
  let builds = 0
  const layer = Layer.effectDiscard(
    Effect.acquireRelease(
      Effect.sync(() => void builds++),
      () => Effect.sync(() => void released.push("layer"))
    )
  )
  const runtime = HostRuntime.make(layer)
  const hold = (release: Effect.Effect<void>) =>
    runtime.hold(
      Effect.acquireRelease(Effect.void, () => release),
      undefined
    )
  return { runtime, hold, released, builds: () => builds }
}

/** Lets everything run that does not wait for something outside. */
const settled = async () => {
  for (let turn = 0; turn < 50; turn++) await setImmediate()
}

describe("HostRuntime", () => {
  it("waits for resources whose release has already begun before it closes", async () => {
    const { hold, released, runtime } = world()
    const gate = Promise.withResolvers<void>()
    const held = await hold(Effect.promise(async () => (await gate.promise, void released.push("resource"))))
    const closing = [held.close(), runtime.close()]
    await settled()
    assert.deepStrictEqual(released, [])
    gate.resolve()
    await Promise.all(closing)
    assert.deepStrictEqual(released, ["resource", "layer"])
  })

  it("releases everything else if one release fails, and rejects with that failure", async () => {
    const { hold, released, runtime } = world()
    const failing = new Error("the release failed")
    await hold(Effect.die(failing))
    await hold(Effect.sync(() => void released.push("resource")))
    const rejection = await runtime.close().then(
      () => undefined,
      (error: unknown) => error
    )
    assert.deepStrictEqual(released, ["resource", "layer"])
    assert.strictEqual(rejection, failing)
  })

  it("rejects with the failure of an acquisition, although its release fails as well", async () => {
    const { runtime } = world()
    const broken = new Error("the container did not start")
    const held = runtime.hold(
      Effect.andThen(
        Effect.acquireRelease(Effect.void, () => Effect.die(new Error("the release failed"))),
        Effect.fail(broken)
      ),
      undefined
    )
    assert.strictEqual(await held.catch((error: unknown) => error), broken)
    await runtime.close()
  })

  it("rejects with the reason if it is closed or the signal has aborted, and builds nothing", async () => {
    const { builds, runtime } = world()
    const rejected = (signal?: AbortSignal) =>
      runtime.hold(Effect.void, signal).then(
        () => assert.fail("it did not reject"),
        (error: unknown) => error
      )
    assert.strictEqual(await rejected(AbortSignal.abort("enough")), "enough")
    assert.strictEqual(builds(), 0)
    await runtime.close()
    assert.deepStrictEqual(await rejected(), new Closed({ what: "host" }))
  })
})
