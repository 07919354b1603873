import { assert, describe, it } from "@effect/vitest"
import { differences, whyUnusable } from "../src/internal/container/WaitingSandbox.ts"
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

  it("serves no run of another image, user, network or kind", () => {
    const { written } = ContainerSpecs
    const { user } = written
    assert.deepStrictEqual(differences(written, { ...written, argv: ["other"], env: { A: "1" } }), [])
    assert.deepStrictEqual(differences(written, { ...written, role: "relay" }), ["role"])
    assert.deepStrictEqual(differences(written, { ...written, image: "other" }), ["image"])
    assert.deepStrictEqual(differences(written, { ...written, supervised: true }), ["supervised"])
    assert.deepStrictEqual(differences(written, { ...written, user: { ...user, userId: 7 } }), ["user"])
    const network = { mode: "internal", networkName: "other" } as const
    assert.deepStrictEqual(differences(written, { ...written, network }), ["network"])
  })
})
