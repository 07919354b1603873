/** Text files for a model: lines, continuation and binary files. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import * as FileTools from "../src/FileTools.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { calling, executorOf, open } from "./ToolWorld.ts"

const bytesOf = (text: string) => new TextEncoder().encode(text)

const holding = (content: Uint8Array | string) =>
  executorOf({
    files: {
      read: () => Effect.succeed(typeof content === "string" ? bytesOf(content) : content),
      write: () => Effect.void,
      list: () => Effect.succeed([]),
      stat: () => Effect.die("no stat"),
      remove: () => Effect.die("no remove")
    }
  })

const read = (executor: Executor, input: object, options?: FileTools.FileToolsOptions) =>
  calling(FileTools.make(executor, options))("file.read", { path: "f", ...input })

describe("file.read", () => {
  it.effect.prop(
    "returns the whole file once when next_offset is followed",
    [
      Schema.Array(Schema.Literals(["", "a", "línea", "🦀".repeat(20), "x".repeat(100)])).check(
        Schema.isMaxLength(40)
      ),
      Schema.Boolean,
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 7 })),
      Schema.Int.check(Schema.isBetween({ minimum: 256, maximum: 600 }))
    ],
    ([lines, closed, limit, outputBytesMax]) =>
      Effect.gen(function* () {
        const whole = lines.join("\n") + (closed ? "\n" : "")
        const count = whole === "" ? 0 : whole.split("\n").length - (whole.endsWith("\n") ? 1 : 0)
        let said = ""
        let offset: number | undefined = 1
        let steps = 0
        while (offset !== undefined) {
          const part = yield* read(holding(whole), { offset, limit }, { outputBytesMax })
          assert.containSubset(part, { binary: false, truncated: false, lines: count })
          assert.isAtMost(bytesOf(part.text as string).byteLength, outputBytesMax)
          assert.isAtMost(part.lines_shown as number, limit)
          if (count > 0) assert.strictEqual(part.first_line, offset)
          said += part.text as string
          offset = part.next_offset as number | undefined
          assert.isAtMost(++steps, count + 1)
        }
        assert.strictEqual(said, whole)
      }),
    { arbitrary: { runs: 200, seed: "file-lines" } }
  )

  it.effect("shortens the middle of a long line, and can read the lines after it", () =>
    Effect.gen(function* () {
      const long = `${"a".repeat(5000)}END\n`
      const first = yield* read(holding(`${long}second\n`), {}, { outputBytesMax: 1000 })
      assert.containSubset(first, {
        truncated: true,
        first_line: 1,
        lines_shown: 1,
        lines: 2,
        next_offset: 2
      })
      assert.isAtMost(bytesOf(first.text as string).byteLength, 1000)
      assert.match(first.text as string, /^a+\n\[\.\.\. 4\d{3} bytes left out.*a+END\n$/su)
      const second = yield* read(holding(`${long}second\n`), { offset: 2 }, { outputBytesMax: 1000 })
      assert.containSubset(second, { text: "second\n", truncated: false })
      assert.notProperty(second, "next_offset")
    })
  )

  it.effect("returns no lines beyond the end, and none of an empty file", () =>
    Effect.gen(function* () {
      assert.containSubset(yield* read(holding("a\nb\n"), { offset: 3 }), {
        text: "",
        lines: 2,
        lines_shown: 0
      })
      assert.containSubset(yield* read(holding(""), {}), { text: "", lines: 0, bytes: 0, binary: false })
    })
  )

  it.effect("returns 2000 lines per call by default", () =>
    Effect.gen(function* () {
      const many = "x\n".repeat(5000)
      assert.containSubset(yield* read(holding(many), {}), { lines_shown: 2000, next_offset: 2001 })
      assert.containSubset(yield* read(holding(many), { limit: 4000 }), { lines_shown: 4000 })
      assert.containSubset(yield* read(holding(many), {}, { linesMax: 10 }), { lines_shown: 10 })
    })
  )

  it.effect("reads sixteen megabytes of line breaks quickly", () =>
    Effect.gen(function* () {
      const result = yield* read(holding(new Uint8Array(16 * 1024 * 1024).fill(10)), {
        offset: 1_000_000,
        limit: 2
      })
      assert.containSubset(result, { text: "\n\n", lines: 16 * 1024 * 1024, next_offset: 1_000_002 })
    })
  )

  it.effect.each([
    ["NUL", Uint8Array.of(97, 0, 98)],
    ["not UTF-8", Uint8Array.of(0xff, 0xfe, 0x41)],
    ["half a character", bytesOf("🦀").subarray(0, 3)],
    ["a surrogate", Uint8Array.of(0xed, 0xa0, 0x80)]
  ] as const)("reports a file that is not text as binary: %s", ([, content]) =>
    Effect.gen(function* () {
      assert.containSubset(yield* read(holding(content), {}), {
        text: "",
        binary: true,
        bytes: content.byteLength,
        lines_shown: 0
      })
    })
  )

  it.effect("refuses an invalid offset or limit", () =>
    Effect.gen(function* () {
      for (const input of [
        { offset: 0 },
        { offset: -1 },
        { offset: 1.5 },
        { limit: 0 },
        { limit: Number.NaN },
        { limit: 1e12 },
        { offset: "1" }
      ]) {
        assert.strictEqual(
          (yield* Effect.flip(read(holding("x"), input))).code,
          "validation",
          JSON.stringify(input)
        )
      }
    })
  )
})

describe("file.write", () => {
  it.effect("writes in UTF-8, and counts in bytes", () =>
    Effect.gen(function* () {
      const sandbox = yield* open()
      const call = calling(FileTools.make(sandbox))
      assert.deepStrictEqual(yield* call("file.write", { path: "a/b", content: "☃" }), {
        path: "a/b",
        bytes: 3
      })
      assert.deepStrictEqual(yield* sandbox.files.read("/workspace/a/b"), bytesOf("☃"))
      assert.deepStrictEqual(yield* call("file.write", { path: "a/b", content: "" }), {
        path: "a/b",
        bytes: 0
      })
    })
  )

  it.effect("refuses content over the size limit, with a remedy", () =>
    Effect.gen(function* () {
      const call = calling(FileTools.make(yield* open()))
      const content = "x".repeat(16 * 1024 * 1024 + 1)
      const error = yield* Effect.flip(call("file.write", { path: "big", content }))
      assert.strictEqual(error.code, "validation")
      assert.match(error.message, /"big" has more than 16777216 bytes/u)
    })
  )

  it.effect("reports a full disk as execution, not validation", () =>
    Effect.gen(function* () {
      const reason = new FileRefused({
        path: "f",
        problem: "no_space",
        detail: "has no room",
        remedy: "Remove some"
      })
      const executor = executorOf({
        files: { ...holding("").files, write: () => Effect.fail(new SandboxError({ reason })) }
      })
      const error = yield* Effect.flip(
        calling(FileTools.make(executor))("file.write", { path: "f", content: "x" })
      )
      assert.deepStrictEqual([error.code, error.message], ["execution", '"f" has no room. Remove some'])
    })
  )
})

describe("file.list", () => {
  it.effect("returns as many of ten thousand entries as fit, and their total", () =>
    Effect.gen(function* () {
      const entries = Array.from({ length: 10_000 }, (_, index) => ({
        name: `${"n".repeat(200)}${index}`,
        type: "file" as const,
        bytes: 1,
        modifiedAt: "2020-01-01T00:00:00.000Z"
      }))
      const executor = executorOf({ files: { ...holding("").files, list: () => Effect.succeed(entries) } })
      const result = yield* calling(FileTools.make(executor))("file.list", {})
      assert.containSubset(result, { path: "/workspace", entries_total: 10_000, truncated: true })
      const { length } = JSON.stringify(result.entries)
      assert.isAtMost(length, 50_000 + 2)
      assert.isAtLeast(length, 50_000 - 400)
    })
  )
})
