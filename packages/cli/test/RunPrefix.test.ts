/** The run that a user means by an ID or a prefix. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { match } from "../src/RunPrefix.ts"

const [one, two, longer] = ["run-aaaa0001", "run-bbbb0001", "run-bbbb0001-more"].map((id) =>
  RunId.make(id)
) as [RunId, RunId, RunId]
const runs = [one, two, longer]

describe("RunPrefix", () => {
  it.each([
    ["run-aaaa0001", { _tag: "Found", id: one }],
    ["run-a", { _tag: "Found", id: one }],
    ["run-bbbb0001-", { _tag: "Found", id: longer }],
    ["run-c", { _tag: "None" }],
    ["", { _tag: "None" }],
    ["run-", { _tag: "Several" }]
  ] as const)("finds %j", (run, expected) => {
    assert.deepStrictEqual(match(run, runs), expected)
  })

  it("prefers a whole ID to the longer one that begins with it", () => {
    assert.deepStrictEqual(match("run-bbbb0001", runs), { _tag: "Found", id: two })
  })
})
