import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { posix } from "node:path"
import * as FilePath from "../src/FilePath.ts"

const Part = Schema.Literals(["a", "b c", "..", ".", "", "workspace", "..."])

describe("FilePath", () => {
  it.effect.each([
    ["a/b", "a/b"],
    ["./a//b/", "a/b"],
    ["/workspace/a", "a"],
    ["/workspace", ""],
    ["", ""],
    ["a/../b", "b"],
    ["/workspace/../workspace/a", "a"],
    ["..a/b..", "..a/b.."],
    ["a\nb", "a\nb"]
  ])("resolves %j to %j in the workspace", ([path, relative]) =>
    Effect.gen(function* () {
      assert.strictEqual(yield* FilePath.relative(path!), relative)
    })
  )

  it.effect.each([
    ["..", "outside_workspace"],
    ["a/../../etc/passwd", "outside_workspace"],
    ["/etc/passwd", "outside_workspace"],
    ["/workspaces/a", "outside_workspace"],
    ["/workspace/../etc", "outside_workspace"],
    ["/../..", "outside_workspace"],
    ["a\0b", "invalid_path"],
    ["é".repeat(2048), "invalid_path"],
    // Counted in bytes, not in characters.
    ["é".repeat(128), "invalid_path"],
    [`${"é".repeat(100)}/`.repeat(21), "invalid_path"],
    // Not above the root, even if it leads back.
    ["/../workspace/a", "outside_workspace"],
    ["../../../workspace/a", "outside_workspace"]
  ])("refuses %j: %s", ([path, problem]) =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(FilePath.relative(path!))
      assert.strictEqual(error.problem, problem)
      assert.isNotEmpty(error.remedy)
    })
  )

  it.effect.prop(
    "accepts only paths in the workspace, and resolves them correctly",
    [Schema.Array(Part), Schema.Boolean],
    ([parts, absolute]) =>
      Effect.gen(function* () {
        const path = `${absolute ? "/" : ""}${parts.join("/")}`
        const relative = yield* Effect.option(FilePath.relative(path))
        if (relative._tag === "None") return
        assert.strictEqual(
          posix.join("/workspace", relative.value),
          posix.resolve("/workspace", path),
          JSON.stringify(path)
        )
      }),
    { arbitrary: { runs: 1000, seed: 6 } }
  )
})
