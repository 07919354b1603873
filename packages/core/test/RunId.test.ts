import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core"
import { Effect, Exit, Schema } from "effect"

const refused = [
  "",
  "run",
  "1234567",
  "a".repeat(49),
  "Run-abcdefghijkl",
  "-un-abcdefghijkl",
  "run-abcdefghijk-",
  "run_abcdefghijkl",
  "run/abcdefghijkl",
  "../../etc/passwd",
  "run-abcdefghijkl\n",
  "run-abcdefghijkl\0",
  "run abcdefghijkl",
  "rün-abcdefghijkl",
  "run-abcdefghijkl;rm",
  "run-$(id)aaaaaaa"
]

describe("RunId", () => {
  it.effect("generates valid and unique IDs", () =>
    Effect.gen(function* () {
      const ids = yield* Effect.all(Array.from({ length: 1000 }, () => RunId.generate))
      for (const id of ids) assert.match(id, /^run-[0-9a-z]{12}$/u)
      assert.strictEqual(new Set(ids).size, ids.length)
    })
  )

  it("accepts IDs of a workflow engine", () => {
    for (const id of ["01890a5d-ac96-774b-bcce-b302099a8057", "a1234567", "a".repeat(48)]) {
      assert.strictEqual(RunId.RunId.make(id), id)
    }
  })

  it.each(refused)("refuses %j", (text) => {
    assert.isTrue(Exit.isFailure(Schema.decodeUnknownExit(RunId.RunId)(text)))
  })

  it.prop(
    "is safe as a file name, a container's name and a git branch",
    [RunId.RunId],
    ([id]) => {
      assert.match(id, /^[a-zA-Z0-9][a-zA-Z0-9_.-]+$/u)
      assert.isFalse(id.includes("..") || id.endsWith(".lock") || id.startsWith("-"))
      assert.isAtMost(id.length, 48)
    },
    { arbitrary: { runs: 300, seed: "run-id" } }
  )
})
