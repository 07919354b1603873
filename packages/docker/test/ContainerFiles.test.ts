/** Files of a container, as reported by a program whose output any process inside can forge. */
import { assert, describe, it } from "@effect/vitest"
import { entriesMax } from "@cogni/sandbox-core/ExecutorLimits"
import { Effect, Schedule, Stream } from "effect"
import * as ContainerFiles from "../src/internal/container/ContainerFiles.ts"

/** Files of a container whose program wrote this output and exited with 0. */
const told = (output: Stream.Stream<string>) =>
  ContainerFiles.make({
    exec: () =>
      Effect.succeed({
        output: Stream.map(output, (text) => ({ channel: "stdout" as const, bytes: Buffer.from(text) })),
        exit: Effect.succeed({ exitCode: 0, oomKilled: false, processesRefused: false }),
        signal: () => Effect.void
      })
  })

const list = (listing: string) => told(Stream.make(listing)).list(".")

const entry = (name: string, bytes = "1", modified = "0") => `file\0${bytes}\0${modified}\0${name}\0`

describe("a listing", () => {
  it.effect("is sorted by name", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(
        (yield* list(`${entry("b")}symlink\0${3}\0${1.5}\0a\0socket\0x\0x\0 \n☃\0`)).map((found) =>
          Object.values(found)
        ),
        [
          [" \n☃", "other", 0, "1970-01-01T00:00:00.000Z"],
          ["a", "symlink", 3, "1970-01-01T00:00:01.500Z"],
          ["b", "file", 1, "1970-01-01T00:00:00.000Z"]
        ]
      )
      assert.deepStrictEqual(yield* list(""), [])
    })
  )

  it.effect.each([
    { bytes: "1e999", modified: "1e300", millis: 8.64e15, size: Number.MAX_SAFE_INTEGER },
    { bytes: "-7", modified: "-1e300", millis: -8.64e15, size: 0 },
    { bytes: "NaN", modified: "NaN", millis: 0, size: 0 },
    { bytes: "1.9", modified: "9999999999999", millis: 8.64e15, size: 1 }
  ])("clamps times and sizes to valid values: $modified, $bytes", ({ bytes, millis, modified, size }) =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* list(entry("a", bytes, modified)), [
        { name: "a", type: "file", bytes: size, modifiedAt: new Date(millis).toISOString() }
      ])
    })
  )

  it.effect.each([
    { what: "a path to another directory", listing: entry("../../etc/passwd") },
    { what: "the parent directory", listing: entry("..") },
    { what: "an empty name", listing: entry("") },
    { what: "a truncated entry", listing: entry("a").slice(0, -1) },
    { what: "a partial second entry", listing: `${entry("a")}file\0` },
    { what: "too many entries", listing: entry("a").repeat(entriesMax + 1) }
  ])("is rejected with $what", ({ listing }) =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(list(listing))
      assert.strictEqual(error._tag === "FileRefused" && error.problem, "unreadable")
    })
  )
})

describe("a description", () => {
  const stat = (said: string) => told(Stream.make(said)).stat("a/b")

  it.effect("has the requested name, whatever the program says", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* stat("directory\x000\x001.5\x00../../etc\x00"), {
        name: "b",
        type: "directory",
        bytes: 0,
        modifiedAt: "1970-01-01T00:00:01.500Z"
      })
      assert.strictEqual((yield* stat("socket\x00x\x00x\x00.\x00")).type, "other")
      assert.strictEqual((yield* told(Stream.make(entry("."))).stat("")).name, "workspace")
    })
  )

  it.effect.each([
    { what: "no entry", said: "" },
    { what: "a truncated entry", said: entry(".").slice(0, -1) },
    { what: "two entries", said: entry(".").repeat(2) },
    { what: "a link", said: "symlink\x001\x000\x00.\x00" },
    { what: "too many bytes", said: entry("x".repeat(400)) }
  ])("is rejected with $what", ({ said }) =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(stat(said))
      assert.strictEqual(error._tag === "FileRefused" && error.problem, "unreadable")
    })
  )
})

describe("endless output", () => {
  it.effect("is read only up to the limit", () =>
    Effect.gen(function* () {
      const files = told(Stream.repeat(Stream.make("x".repeat(1000)), Schedule.forever))
      for (const asked of [
        files.read("a", { bytesMax: 5000 }),
        files.list("."),
        files.write("a", ""),
        files.stat("a"),
        files.remove("a")
      ]) {
        assert.strictEqual((yield* Effect.flip(asked))._tag, "FileRefused")
      }
    })
  )
})
