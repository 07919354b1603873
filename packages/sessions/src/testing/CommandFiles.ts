/** Executor contract: files of the workspace, which are written atomically, confined, and shared with commands. */
import { type Executor } from "@cogni/sandbox-core/Executor"
import { fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { problemOf, type Promises } from "./CommandSubject.ts"

const bytesOf = (text: string) => new TextEncoder().encode(text)

const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

/** Every byte value, repeatedly. */
const manyBytes = Uint8Array.from({ length: 4 * 1024 ** 2 }, (_, index) => (index * 31 + (index >> 8)) & 0xff)

const operations = (path: string, { read, list, remove, stat, write }: Executor["files"]) =>
  ({
    read: read(path),
    write: write(path, "x"),
    list: list(path),
    stat: stat(path),
    remove: remove(path, { recursive: true })
  }) as const

export const files: Promises = {
  "reads back exactly the bytes that were written": ({ executor: { files } }) =>
    Effect.gen(function* () {
      yield* files.write("bytes/many", manyBytes)
      assert.isTrue(Buffer.from(manyBytes).equals(yield* files.read("bytes/many")))
      yield* files.write("bytes/none", "")
      assert.strictEqual((yield* files.read("bytes/none")).byteLength, 0)
      yield* files.write("bytes/text", "ünï ☃\r\n")
      assert.strictEqual(textOf(yield* files.read("bytes/text")), "ünï ☃\r\n")
    }),

  "a second write replaces the whole content": ({ executor: { files } }) =>
    Effect.gen(function* () {
      yield* files.write("again", "a long content")
      yield* files.write("again", "short")
      assert.strictEqual(textOf(yield* files.read("again")), "short")
    }),

  "a concurrent read sees the old or the new content": ({ executor: { files } }) =>
    Effect.gen(function* () {
      const contents = ["a", "b"].map((letter) => letter.repeat(256 * 1024))
      yield* files.write("whole", contents[0]!)
      const writing = Effect.forEach([1, 0, 1, 0, 1, 0], (index) => files.write("whole", contents[index]!))
      const reading = Effect.forEach(Array.from({ length: 12 }), () => files.read("whole"))
      const [, seen] = yield* Effect.all([writing, reading], { concurrency: "unbounded" })
      for (const content of seen) assert.include(contents, textOf(content))
      assert.deepStrictEqual(
        (yield* files.list(".")).filter(({ name }) => name.startsWith(".cogni-")),
        [],
        "the temporary file is removed"
      )
    }),

  "creates directories, and lists their entries by name": ({ executor: { files, workspace } }) =>
    Effect.gen(function* () {
      yield* files.write("listed/b", "12345")
      yield* files.write("listed/a/deeper/file", "")
      yield* files.write("listed/Z", "1")
      yield* files.write("listed/ü ☃", "")
      const found = yield* files.list("listed")
      assert.deepStrictEqual(
        found.map(({ bytes, name, type }) => [name, type, type === "file" ? bytes : 0]),
        [
          ["Z", "file", 1],
          ["a", "directory", 0],
          ["b", "file", 5],
          ["ü ☃", "file", 0]
        ]
      )
      for (const { modifiedAt } of found)
        assert.match(modifiedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/u)
      assert.deepStrictEqual(
        (yield* files.list("listed/a")).map(({ name }) => name),
        ["deeper"]
      )
      const named = yield* Effect.forEach([workspace, ".", ""], (path) =>
        Effect.map(files.list(path), (entries) => entries.map(({ name }) => name))
      )
      assert.include(named[0]!, "listed")
      assert.deepStrictEqual(named, [named[0]!, named[0]!, named[0]!])
    }),

  "accepts absolute and relative paths, and `..` inside the workspace": ({ executor }) =>
    Effect.gen(function* () {
      const { files, workspace } = executor
      yield* files.write(`${workspace}/paths/file`, "content")
      for (const path of [
        "paths/file",
        "./paths//file",
        "paths/../paths/file",
        `${workspace}/paths/./file`
      ]) {
        assert.strictEqual(textOf(yield* files.read(path)), "content", path)
      }
    }),

  "refuses a path outside the workspace": ({ executor: { files, workspace } }) =>
    Effect.gen(function* () {
      const paths = ["..", "../x", "a/../../x", "/etc/passwd", "/", `${workspace}/../x`, `${workspace}x`]
      for (const path of paths) {
        for (const [name, operation] of Object.entries(operations(path, files))) {
          assert.strictEqual(yield* problemOf(operation), "outside_workspace", `${name} ${path}`)
        }
      }
    }),

  "refuses an invalid path": ({ executor: { files } }) =>
    Effect.gen(function* () {
      for (const path of ["a\0b", "n".repeat(256), "d/".repeat(3000)]) {
        for (const [name, operation] of Object.entries(operations(path, files))) {
          assert.strictEqual(yield* problemOf(operation), "invalid_path", name)
        }
      }
    }),

  "reports a missing path as not_found": ({ executor: { files } }) =>
    Effect.gen(function* () {
      for (const path of ["absent", "absent/below"]) {
        const { list, read, remove, stat } = operations(path, files)
        for (const operation of [read, list, stat, remove, files.remove(path)]) {
          assert.strictEqual(yield* problemOf(operation), "not_found", path)
        }
      }
    }),

  "distinguishes files and directories": ({ executor: { files } }) =>
    Effect.gen(function* () {
      yield* files.write("kinds/file", "content")
      for (const path of ["kinds", "kinds/", ".", ""]) {
        assert.strictEqual(yield* problemOf(files.read(path)), "not_a_file", path)
        assert.strictEqual(yield* problemOf(files.write(path, "x")), "not_a_file", path)
      }
      assert.strictEqual(yield* problemOf(files.list("kinds/file")), "not_a_directory")
      for (const [name, operation] of Object.entries(operations("kinds/file/below", files))) {
        assert.strictEqual(yield* problemOf(operation), "not_a_directory", name)
      }
      assert.strictEqual(textOf(yield* files.read("kinds/file")), "content")
    }),

  "refuses a file over the limit, and reads one at the limit": ({ executor: { files } }) =>
    Effect.gen(function* () {
      yield* files.write("sizes/ten", "0123456789")
      assert.strictEqual((yield* files.read("sizes/ten", { bytesMax: 10 })).byteLength, 10)
      for (const bytesMax of [9, 0, -1, 9.5, NaN]) {
        assert.strictEqual(
          yield* problemOf(files.read("sizes/ten", { bytesMax })),
          "too_large",
          `${bytesMax}`
        )
      }
      const tooMany = new Uint8Array(fileBytesMax + 1)
      assert.strictEqual(yield* problemOf(files.write("sizes/large", tooMany)), "too_large")
      assert.strictEqual(yield* problemOf(files.read("sizes/large")), "not_found")
    }),

  "describes a file and a directory": ({ executor: { files, workspace } }) =>
    Effect.gen(function* () {
      yield* files.write("described/file", "12345")
      const file = yield* files.stat("described/file")
      assert.deepStrictEqual([file.name, file.type, file.bytes], ["file", "file", 5])
      assert.match(file.modifiedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/u)
      assert.deepStrictEqual(yield* files.stat(`${workspace}/./described/../described/file`), file)
      const directory = yield* files.stat("described/")
      assert.deepStrictEqual([directory.name, directory.type], ["described", "directory"])
      for (const path of ["", ".", workspace]) {
        const root = yield* files.stat(path)
        assert.deepStrictEqual([root.name, root.type], [workspace.split("/").at(-1), "directory"], path)
      }
    }),

  "removes a file, and leaves its directory and its neighbours": ({ executor: { files } }) =>
    Effect.gen(function* () {
      yield* files.write("removed/one", "1")
      yield* files.write("removed/one more", "2")
      yield* files.remove("removed/one")
      assert.strictEqual(yield* problemOf(files.read("removed/one")), "not_found")
      yield* files.remove("removed/one more", { recursive: true })
      assert.deepStrictEqual(yield* files.list("removed"), [])
      yield* files.write("removed/one", "again")
      assert.strictEqual(textOf(yield* files.read("removed/one")), "again")
    }),

  "removes a directory only if asked to, with all that it contains": ({ executor: { files } }) =>
    Effect.gen(function* () {
      yield* files.write("tree/a/b/c", "1")
      yield* files.write("tree/a/file", "2")
      yield* files.write("tree b/file", "3")
      for (const options of [undefined, {}, { recursive: false }]) {
        const error = yield* Effect.orDie(Effect.flip(files.remove("tree/a", options)))
        assert.include(error.message, "is a directory")
      }
      assert.strictEqual(textOf(yield* files.read("tree/a/b/c")), "1")
      yield* files.remove("tree/a", { recursive: true })
      assert.deepStrictEqual(yield* files.list("tree"), [])
      assert.strictEqual(yield* problemOf(files.remove("tree")), "not_a_file", "also if it is empty")
      yield* files.remove("tree/", { recursive: true })
      assert.strictEqual(yield* problemOf(files.stat("tree")), "not_found")
      assert.strictEqual(textOf(yield* files.read("tree b/file")), "3")
    }),

  "never removes the workspace itself": ({ executor: { files, workspace } }) =>
    Effect.gen(function* () {
      yield* files.write("kept", "x")
      for (const path of ["", ".", "./", "kept/..", workspace]) {
        assert.strictEqual(yield* problemOf(files.remove(path, { recursive: true })), "invalid_path", path)
        assert.strictEqual(yield* problemOf(files.remove(path)), "invalid_path", path)
      }
      assert.strictEqual(textOf(yield* files.read("kept")), "x")
    }),

  "one of several concurrent removals of a file succeeds, and the others find nothing": ({
    executor: { files }
  }) =>
    Effect.gen(function* () {
      for (let round = 0; round < 5; round++) {
        yield* files.write("raced", "x")
        const removed = yield* Effect.forEach(
          Array.from({ length: 4 }),
          () =>
            Effect.matchEffect(files.remove("raced"), {
              onSuccess: () => Effect.succeed("removed"),
              onFailure: (error) => problemOf(Effect.fail(error))
            }),
          { concurrency: "unbounded" }
        )
        assert.sameMembers(removed, ["removed", "not_found", "not_found", "not_found"])
      }
    }),

  "a file that is written and removed concurrently is whole or absent": ({ executor: { files } }) =>
    Effect.gen(function* () {
      const content = "w".repeat(100_000)
      const write = files.write("contested/file", content)
      const remove = Effect.ignore(files.remove("contested/file"))
      const seen = Effect.match(files.read("contested/file"), {
        onSuccess: textOf,
        onFailure: ({ reason }) => (reason._tag === "FileRefused" ? reason.problem : reason._tag)
      })
      const found = yield* Effect.forEach(
        Array.from({ length: 8 }),
        () => Effect.all([write, remove, seen], { concurrency: "unbounded" }),
        { concurrency: 2 }
      )
      for (const [, , one] of found) assert.include([content, "not_found"], one)
      assert.deepStrictEqual(
        (yield* files.list("contested")).filter(({ name }) => name !== "file"),
        [],
        "no temporary file is left"
      )
    }),

  "files and commands share one workspace": ({ executor: { files }, run }) =>
    Effect.gen(function* () {
      yield* files.write("seen/by commands", bytesOf("from outside ☃"))
      const said = yield* run({ _tag: "SaysFile", path: "seen/by commands" })
      assert.strictEqual(said.output.stdout.text, "from outside ☃")
      const wrote = yield* run({ _tag: "WritesFile", path: "seen/by us", content: "from inside ☃" })
      assert.strictEqual(wrote.exitCode, 0)
      assert.strictEqual(textOf(yield* files.read("seen/by us")), "from inside ☃")
    })
}
