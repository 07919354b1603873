import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { differences, inTime, whyUnusable } from "../src/internal/container/WaitingSandbox.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const inspected = (Status: string) => ({
  Image: "sha256:one",
  State: { Status, Running: Status === "running", OOMKilled: false, Pid: 7, ExitCode: 0 }
})

describe("WaitingSandbox", () => {
  it("is unusable unless it runs, from the image that has its name now", () => {
    assert.isUndefined(whyUnusable(inspected("running"), "sha256:one"))
    assert.strictEqual(whyUnusable(undefined, "sha256:one"), "it was removed")
    assert.strictEqual(whyUnusable(inspected("exited"), "sha256:one"), "it is exited")
    assert.strictEqual(whyUnusable(inspected("paused"), "sha256:one"), "it is paused")
    assert.strictEqual(whyUnusable(inspected("running"), "sha256:two"), "its image was replaced")
    assert.strictEqual(whyUnusable(inspected("running"), undefined), "its image was removed")
  })

  it("is unusable if the engine has started another program in it", () => {
    assert.isUndefined(whyUnusable({ ...inspected("running"), ExecIDs: null }, "sha256:one"))
    assert.isUndefined(whyUnusable({ ...inspected("running"), ExecIDs: [] }, "sha256:one"))
    assert.strictEqual(
      whyUnusable({ ...inspected("running"), ExecIDs: ["a"] }, "sha256:one"),
      "another program was started in it while it waited"
    )
  })

  it.effect("gives the engine 5 s for its part of a claim", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* inTime(Effect.succeed(1)), 1)
      const fiber = yield* Effect.forkChild(Effect.flip(inTime(Effect.never)))
      yield* TestClock.adjust("5 seconds")
      assert.include((yield* Fiber.join(fiber)).message, "the engine did not answer within 5 s")
    })
  )

  it("serves no run of another image, user, network, loaded program or kind", () => {
    const { written } = ContainerSpecs
    const { user } = written
    assert.deepStrictEqual(differences(written, { ...written, argv: ["other"], env: { A: "1" } }), [])
    assert.deepStrictEqual(differences(written, { ...written, role: "relay" }), ["role"])
    assert.deepStrictEqual(differences(written, { ...written, image: "other" }), ["image"])
    assert.deepStrictEqual(differences(written, { ...written, supervised: true }), ["supervised"])
    assert.deepStrictEqual(differences(written, { ...written, user: { ...user, userId: 7 } }), ["user"])
    const preload = ["node", "load.mjs"]
    assert.deepStrictEqual(differences(written, { ...written, preload }), ["preload"])
    assert.deepStrictEqual(differences({ ...written, preload }, written), ["preload"])
    assert.deepStrictEqual(differences({ ...written, preload }, { ...written, preload: [...preload] }), [])
    const network = { mode: "internal", networkName: "other" } as const
    assert.deepStrictEqual(differences(written, { ...written, network }), ["network"])
  })
})
