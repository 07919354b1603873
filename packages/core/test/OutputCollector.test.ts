import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { leftovers, run, runner, spec } from "./Specs.ts"

const bytes = (...values: ReadonlyArray<number>) => Uint8Array.from(values)

describe("OutputCollector", () => {
  it.effect("counts and keeps stdout and stderr separately", () =>
    Effect.gen(function* () {
      const { output } = yield* run()
      assert.deepStrictEqual(output, {
        stdout: { text: "one two", bytes: 7, truncated: false },
        stderr: { text: "☃", bytes: 3, truncated: false }
      })
    }).pipe(
      Effect.provide(
        runner({
          program: ({ stderr, stdout }) =>
            stdout("one ").pipe(Effect.andThen(stderr("☃")), Effect.andThen(stdout("two")), Effect.as(0))
        })
      )
    )
  )

  it.effect("counts binary and invalid UTF-8 exactly, and decodes it as U+FFFD", () =>
    Effect.gen(function* () {
      const { output } = yield* run()
      assert.deepStrictEqual(output.stdout, { text: "a\uFFFD\0\uFFFDb", bytes: 5, truncated: false })
      assert.deepStrictEqual(output.stderr, { text: "\uFEFFbom", bytes: 6, truncated: false })
    }).pipe(
      Effect.provide(
        runner({
          program: ({ stderr, stdout }) =>
            stdout(bytes(0x61, 0xff, 0x00, 0xc3, 0x62)).pipe(
              Effect.andThen(stderr(bytes(0xef, 0xbb, 0xbf, 0x62, 0x6f, 0x6d))),
              Effect.as(0)
            )
        })
      )
    )
  )

  it.effect("decodes a character that is split across two chunks", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* run()).output.stdout.text, "☃")
    }).pipe(
      Effect.provide(
        runner({
          program: ({ stdout }) =>
            stdout(bytes(0xe2)).pipe(Effect.andThen(stdout(bytes(0x98, 0x83))), Effect.as(0))
        })
      )
    )
  )

  it.effect("counts and drops output over the retained size, and marks it as truncated", () =>
    Effect.gen(function* () {
      const { output } = yield* run({ ...spec, limits: { outputRetainedBytesMax: 10 } })
      assert.deepStrictEqual(output.stdout, { text: "0123456789", bytes: 4015, truncated: true })
      assert.deepStrictEqual(output.stderr, { text: "0123456789", bytes: 10, truncated: false })
    }).pipe(
      Effect.provide(
        runner({
          program: ({ stderr, stdout }) =>
            stdout("01234").pipe(
              Effect.andThen(stdout("56789" + "x".repeat(4000))),
              Effect.andThen(stdout("xxxxx")),
              Effect.andThen(stderr("0123456789")),
              Effect.as(0)
            )
        })
      )
    )
  )

  it.effect("keeps nothing if the retained size is 0", () =>
    Effect.gen(function* () {
      const { output } = yield* run({ ...spec, limits: { outputRetainedBytesMax: 0 } })
      assert.deepStrictEqual(output.stdout, { text: "", bytes: 3, truncated: true })
      assert.deepStrictEqual(output.stderr, { text: "", bytes: 0, truncated: false })
    }).pipe(Effect.provide(runner({ program: ({ stdout }) => Effect.as(stdout("abc"), 0) })))
  )

  it.effect.prop(
    "counts any output exactly, and keeps its beginning, in any pieces",
    [Schema.Array(Schema.Uint8Array), Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 64 }))],
    ([pieces, kept]) =>
      Effect.gen(function* () {
        const { output } = yield* run({ ...spec, limits: { outputRetainedBytesMax: kept } })
        const all = Buffer.concat(pieces)
        assert.deepStrictEqual(output.stdout, {
          text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(all.subarray(0, kept)),
          bytes: all.byteLength,
          truncated: all.byteLength > kept
        })
        assert.deepStrictEqual(yield* leftovers(), [])
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) => Effect.as(Effect.forEach(pieces, stdout, { discard: true }), 0)
          }),
          { local: true }
        )
      ),
    { arbitrary: { runs: 100, seed: "output" } }
  )
})
