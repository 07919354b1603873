/** Tests how the page reads a recording, and how it cuts its pauses. */
import * as RunRecording from "@cogni/sandbox-core/RunRecording"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Recording from "../src/Recording.ts"

const header = '{"version":3,"term":{"cols":80,"rows":24}}'

const read = (...lines: ReadonlyArray<string>) => {
  const recording = Recording.parse([header, ...lines, ""].join("\n"))
  return recording ?? assert.fail("no recording")
}

const Gap = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 20_000 }))

describe("Recording", () => {
  it.prop(
    "is what the server has written",
    [Schema.Array(Schema.Struct({ gap: Gap, text: Schema.String }))],
    ([written]) => {
      const writer = RunRecording.makeWriter({ title: "run" })
      let millis = 0
      const lines = written.map(({ gap, text }, index) => {
        millis += index === 0 ? 0 : gap
        const at = new Date(millis).toISOString()
        return writer.add({ seq: index + 1, at, type: "output.written", channel: "stdout", from: 0, text })
      })
      const recording = Recording.parse(lines.join("") + writer.end()) ?? assert.fail("no recording")
      assert.strictEqual(
        recording.pieces.map(({ text }) => text.replaceAll("\r\n", "\n")).join(""),
        written.map(({ text }) => text.toWellFormed()).join("")
      )
      assert.strictEqual(Math.round(recording.durationMs), millis)
    }
  )

  it("skips comments, unknown events and invalid lines, and keeps what is before a cut", () => {
    const { durationMs, markers, pieces } = read(
      "# comment",
      '[0.5,"o","a"]',
      "",
      '[1,"r","90x30"]',
      '[-5,"o","back"]',
      '["1","o","text"]',
      '[1,"o"]',
      '[1,"m","stage"]',
      '[0.5,"x","0"]',
      '[1,"o","cut'
    )
    assert.deepStrictEqual(pieces, [{ seq: 1, at: 500, text: "a" }])
    assert.deepStrictEqual(markers, [{ at: 2500, label: "stage" }])
    assert.strictEqual(durationMs, 3000)
  })

  it("is undefined without the header of the version", () => {
    for (const text of ["", "{}", "{}\n", '{"version":2}\n', "<html>\n", '[0,"o","a"]\n'])
      assert.isUndefined(Recording.parse(text), text)
  })

  it("has bounds for hostile intervals and markers", () => {
    const { durationMs, markers } = read(
      '[1e300,"o","a"]',
      '[1e308,"o","b"]',
      ...Array.from({ length: 500 }, () => '[0,"m","stage"]')
    )
    assert.isBelow(durationMs, 1e12)
    assert.strictEqual(markers.length, Recording.markersMax)
  })

  it.prop("has no longer pause than asked, and changes no shorter one", [Schema.Array(Gap)], ([gaps]) => {
    const whole = read(...gaps.map((gap, index) => `[${gap / 1000},"${index % 3 === 0 ? "m" : "o"}","a"]`))
    const cut = Recording.limited(whole, 2000)
    const times = ({ durationMs, markers, pieces }: Recording.Recording) =>
      [...markers, ...pieces]
        .map(({ at }) => at)
        .concat(durationMs)
        .toSorted((a, b) => a - b)
    const pauses = (recording: Recording.Recording) =>
      times(recording).map((at, index, all) => Math.round(at - (all[index - 1] ?? 0)))
    assert.deepStrictEqual(
      pauses(cut),
      pauses(whole).map((pause) => Math.min(pause, 2000))
    )
    for (const { at } of whole.pieces) {
      const there = Recording.translated(at, whole, cut)
      assert.isAtLeast(Recording.countAt(cut, there), Recording.countAt(whole, at))
    }
    assert.strictEqual(Recording.translated(whole.durationMs, whole, cut), cut.durationMs)
  })
})
