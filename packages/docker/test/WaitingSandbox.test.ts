import { assert, describe, it } from "@effect/vitest"
import { MemoryContainerRuntime } from "@cogni/sandbox-core"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as DockerApi from "../src/DockerApi.ts"
import * as GVisor from "../src/internal/container/GVisor.ts"
import * as Hardening from "../src/internal/container/Hardening.ts"
import {
  differences,
  inTime,
  make,
  whyMisnamed,
  whyStopped
} from "../src/internal/container/WaitingSandbox.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const inspected = (Status: string) => ({
  Id: "one",
  State: { Status, Running: Status === "running", OOMKilled: false, Pid: 7, ExitCode: 0 }
})

const image = "cogni-sandbox/runtime:latest"
const others = { Id: "two", Image: image }
const named = [others, { Id: "one", Image: image }]

describe("WaitingSandbox", () => {
  it("is unusable unless it runs, from the image that has its name now", () => {
    assert.isUndefined(whyStopped(inspected("running")))
    assert.strictEqual(whyStopped(undefined), "it was removed")
    assert.strictEqual(whyStopped(inspected("exited")), "it is exited")
    assert.strictEqual(whyStopped(inspected("paused")), "it is paused")
    assert.isUndefined(whyMisnamed({ id: "one", image, named }))
    const replaced = [others, { Id: "one", Image: "sha256:0123" }]
    assert.strictEqual(
      whyMisnamed({ id: "one", image, named: replaced }),
      "its image was replaced or removed"
    )
    assert.strictEqual(whyMisnamed({ id: "one", image, named: [others] }), "it was renamed")
  })

  it("is unusable if the engine has started another program in it", () => {
    const why = (ExecIDs: ReadonlyArray<string> | null) => whyStopped({ ...inspected("running"), ExecIDs })
    assert.isUndefined(why(null))
    assert.isUndefined(why([]))
    assert.strictEqual(why(["a"]), "another program was started in it while it waited")
  })

  it.effect("gives the engine 5 s for its part of a claim", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* inTime(Effect.succeed(1)), 1)
      const fiber = yield* Effect.forkChild(Effect.flip(inTime(Effect.never)))
      yield* TestClock.adjust("5 seconds")
      assert.include(
        (yield* Fiber.join(fiber)).message,
        "the container engine did not give a waiting sandbox to its run within 5 s"
      )
    })
  )

  it.effect("serves no run with too few processes for gVisor, and asks the engine nothing for it", () =>
    Effect.gen(function* () {
      const { written: spec } = ContainerSpecs
      const runtime = yield* MemoryContainerRuntime.make()
      const container = yield* runtime.acquire(spec)
      const asked: Array<number> = []
      const waiting = yield* make(yield* DockerApi.DockerApi, {
        binder: { bind: () => Effect.void },
        checkLimits: (run) => {
          asked.push(run.limits.processesMax)
          const refused = GVisor.refusal(run)
          return refused === undefined ? Effect.void : Effect.fail(refused)
        },
        claim: () => Effect.die("nothing is sent to it"),
        container,
        endedNow: () => false,
        fail: () => Effect.void,
        hardened: Hardening.hostConfig,
        hostConfig: Hardening.hostConfig(spec),
        inspectAgain: Effect.undefined,
        isEmpty: () => false,
        load: () => Effect.die("it loads nothing"),
        nameOf: (runId) => runId,
        noteRun: () => ({ noteStart: Effect.void }),
        spec,
        troubled: () => undefined,
        used: () => undefined
      })
      const run = { ...spec, limits: { ...spec.limits, processesMax: 63 } }
      const { message } = yield* Effect.flip(waiting.bind(run))
      assert.include(message, "gVisor hangs in a container with fewer than 64 processes")
      assert.deepStrictEqual(asked, [63])
    }).pipe(Effect.provide(Layer.mock(DockerApi.DockerApi, { address: { type: "unix", path: "/nowhere" } })))
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
