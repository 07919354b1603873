import { assert, describe, it } from "@effect/vitest"
import * as Deadline from "../src/internal/container/Deadline.ts"
import * as ContainerSpecs from "./ContainerSpecs.ts"

const { written } = ContainerSpecs
const limits = { ...written.limits, runtimeSecondsMax: 60, stopGraceSecondsMax: 5 }

describe("Deadline", () => {
  it("is 5 s after the time at which the host has killed the container", () => {
    assert.strictEqual(Deadline.secondsMax({ limits }), 70)
    assert.strictEqual(Deadline.secondsMax(written), 65, "without a grace")
    assert.strictEqual(Deadline.secondsMax({ limits: { ...limits, runtimeSecondsMax: 0.2 } }), 11)
  })

  it("lets the first process of every agent and relay keep it", () => {
    const argv = ["bash", "-c", "true"]
    assert.deepStrictEqual(Deadline.program({ ...written, limits, argv }), {
      entrypoint: ["/usr/local/bin/cogni-init", "150", "70", "/usr/local/bin/cogni-entrypoint"],
      argv,
      workingDirectory: "/workspace"
    })
    assert.deepStrictEqual(Deadline.program({ ...written, limits, argv, role: "relay" }), {
      entrypoint: ["/usr/local/bin/cogni-init", "0", "70"],
      argv,
      workingDirectory: "/"
    })
    for (const role of ["proxy", "gateway"] as const)
      assert.deepStrictEqual(Deadline.program({ ...written, argv, role }), { argv })
  })

  it("comes with the run in a sandbox that waits, which ends itself if none comes", () => {
    assert.deepStrictEqual(Deadline.waitingProgram({}, 1920), {
      entrypoint: ["/usr/local/bin/cogni-init", "2070", "0", "/usr/local/bin/cogni-waiter"],
      argv: [],
      workingDirectory: "/workspace"
    })
    assert.deepStrictEqual(Deadline.waitingProgram({ preload: ["node"] }, 1920).argv, ["load"])
    assert.deepStrictEqual(Deadline.waitingProgram({ supervised: true }, 1920).argv, [
      "/usr/local/bin/cogni-supervisor"
    ])
  })

  it("tells a proxy the size of its configuration in bytes, and a deadline after that of its run", () => {
    assert.deepStrictEqual(Deadline.environment({ role: "proxy", limits, stdin: "é{}" }), [
      "COGNI_CONFIG_BYTES=4",
      "COGNI_DEADLINE_SECONDS=370"
    ])
    for (const role of ["agent", "relay", "gateway"] as const)
      assert.deepStrictEqual(Deadline.environment({ role, limits }), [])
  })

  it("has passed only if the container ended itself, and not before its time limit", () => {
    const state = (ExitCode: number, seconds: number) => ({
      ExitCode,
      StartedAt: "2030-01-01T00:00:00.123456789Z",
      FinishedAt: new Date(Date.parse("2030-01-01T00:00:00.123Z") + seconds * 1000).toISOString()
    })
    assert.isTrue(Deadline.hasPassed(state(98, 70), { limits }))
    assert.isTrue(Deadline.hasPassed(state(98, 60), { limits }))
    assert.isFalse(Deadline.hasPassed(state(98, 59), { limits }), "an agent that exits with 98")
    assert.isFalse(Deadline.hasPassed(state(137, 70), { limits }), "the host killed it")
    const claimedMillis = Date.parse("2030-01-01T00:00:30.000Z")
    assert.isFalse(Deadline.hasPassed(state(98, 70), { limits }, claimedMillis), "it waited for 30 s")
    assert.isTrue(Deadline.hasPassed(state(98, 95), { limits }, claimedMillis))
    assert.isFalse(Deadline.hasPassed({ ExitCode: 98 }, { limits }), "an engine without timestamps")
    assert.isFalse(Deadline.hasPassed({ ...state(98, 70), FinishedAt: "0001-01-01T00:00:00Z" }, { limits }))
  })
})
