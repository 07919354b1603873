import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { entriesMax } from "../src/ExecutorLimits.ts"
import * as MemoryFiles from "../src/internal/MemoryFiles.ts"

const problemOf = <A>(asked: Effect.Effect<A, { readonly problem: string }>) =>
  Effect.map(Effect.flip(asked), ({ problem }) => problem)

describe("MemoryFiles", () => {
  it.effect("refuses a file of more than bytesMax, but not one of exactly bytesMax", () =>
    Effect.gen(function* () {
      const files = MemoryFiles.make(MemoryFiles.empty())
      yield* files.write("a", "12345")
      assert.strictEqual(yield* problemOf(files.read("a", { bytesMax: 4 })), "too_large")
      assert.strictEqual((yield* files.read("a", { bytesMax: 5 })).byteLength, 5)
    })
  )

  it.effect("refuses paths below a file, and a directory as a file", () =>
    Effect.gen(function* () {
      const files = MemoryFiles.make(MemoryFiles.empty())
      yield* files.write("a/b", "")
      assert.strictEqual(yield* problemOf(files.write("a/b/c", "")), "not_a_directory")
      assert.strictEqual(yield* problemOf(files.read("a/b/c")), "not_a_directory")
      for (const path of ["a", ".", ""]) {
        assert.strictEqual(yield* problemOf(files.write(path, "")), "not_a_file", path)
        assert.strictEqual(yield* problemOf(files.read(path)), "not_a_file", path)
      }
    })
  )

  it.effect("lists a directory of exactly the maximum of entries, but not of one more", () =>
    Effect.gen(function* () {
      const tree = MemoryFiles.empty()
      const files = MemoryFiles.make(tree)
      tree.set("many", {})
      for (let index = 0; index < entriesMax; index++) {
        tree.set(`many/${index}`, { content: new Uint8Array(0) })
      }
      assert.strictEqual((yield* files.list("many")).length, entriesMax)
      tree.set("many/more", { content: new Uint8Array(0) })
      assert.strictEqual(yield* problemOf(files.list("many")), "too_large")
    })
  )
})
