import { assert, describe, it } from "@effect/vitest"
import { beginningOf, isUnchanged } from "../src/internal/engine/KnownContainer.ts"

const fields = {
  Id: "one",
  State: { Status: "running", Pid: 7 },
  Image: "sha256:one",
  Name: "/one",
  ExecIDs: null as ReadonlyArray<string> | null,
  HostConfig: { Memory: 1, Mounts: [{ Target: "/a" }], SecurityOpt: ['seccomp={"GraphDriver":{}}'] },
  GraphDriver: { Name: "overlay2" },
  Mounts: ["a", "b"],
  Config: { Labels: { ',"GraphDriver":': "x" } }
}

const answer = (change: object = {}): string => `${JSON.stringify({ ...fields, ...change })}\n`

/** Whether an engine that answered with `fields` says the same now. */
const unchanged = (change: object) => isUnchanged(answer(change), { beginning: beginningOf(answer()) })

describe("KnownContainer", () => {
  it("takes an answer for the same if only what no check reads has changed", () => {
    assert.isTrue(unchanged({}))
    assert.isTrue(unchanged({ Mounts: ["b", "a"], GraphDriver: { Name: "other" } }))
  })

  it("takes no answer for the same that says something else about what a check reads", () => {
    assert.isFalse(unchanged({ Id: "two" }))
    assert.isFalse(unchanged({ State: { Status: "paused", Pid: 7 } }))
    assert.isFalse(unchanged({ State: { Status: "running", Pid: 8 } }))
    assert.isFalse(unchanged({ ExecIDs: ["a"] }))
    assert.isFalse(unchanged({ HostConfig: { ...fields.HostConfig, Memory: 2 } }))
    assert.isFalse(unchanged({ HostConfig: { ...fields.HostConfig, Privileged: true } }))
    assert.isFalse(isUnchanged("", { beginning: beginningOf(answer()) }))
  })

  it("takes no answer for the same if an engine writes it in another order", () => {
    for (const last of ["Id", "Name", "Image", "State", "ExecIDs", "HostConfig"] as const) {
      const { [last]: value, ...others } = fields
      const text = JSON.stringify({ ...others, [last]: value })
      assert.isUndefined(beginningOf(text), last)
      assert.isFalse(isUnchanged(text, { beginning: beginningOf(text) }), last)
    }
    const { GraphDriver: _, ...without } = fields
    assert.isUndefined(beginningOf(JSON.stringify(without)))
    // Not at the outermost level.
    const inner = {
      Id: "one",
      HostConfig: { Memory: 1, GraphDriver: {} },
      State: {},
      Name: "",
      Image: "",
      ExecIDs: []
    }
    assert.isUndefined(beginningOf(JSON.stringify(inner)))
    assert.isUndefined(beginningOf("no JSON"))
  })
})
