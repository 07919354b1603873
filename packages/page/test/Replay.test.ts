/** Tests the place in a replay: it plays, stops at its end, and begins again when it goes back. */
import { assert, describe, it } from "@effect/vitest"
import * as Replay from "../src/Replay.ts"

const recording = { durationMs: 10_000 }

const playing = Replay.toggled(Replay.start, recording)

describe("Replay", () => {
  it("moves by the time that has passed, at its speed, and only while it plays", () => {
    assert.strictEqual(Replay.passed(Replay.start, 100, recording).at, 0)
    assert.strictEqual(Replay.passed(playing, 100, recording).at, 100)
    assert.strictEqual(Replay.passed({ ...playing, speed: "0.5" }, 100, recording).at, 50)
    // A clock that goes back does not count.
    assert.strictEqual(Replay.passed(playing, -100, recording).at, 0)
  })

  it("stops at its end, and plays from its beginning then", () => {
    const ended = Replay.passed({ ...playing, speed: "10" }, 60_000, recording)
    assert.deepStrictEqual([ended.at, ended.isPlaying, ended.beginnings], [10_000, false, 0])
    const again = Replay.toggled(ended, recording)
    assert.deepStrictEqual([again.at, again.isPlaying, again.beginnings], [0, true, 1])
  })

  it("needs an empty terminal only to go back", () => {
    const forth = Replay.sought(Replay.start, 5000, recording)
    assert.deepStrictEqual([forth.at, forth.beginnings], [5000, 0])
    const back = Replay.sought(forth, 4000, recording)
    assert.deepStrictEqual([back.at, back.beginnings], [4000, 1])
    assert.strictEqual(Replay.sought(back, 1e9, recording).at, 10_000)
    assert.strictEqual(Replay.sought(back, -1, recording).at, 0)
  })

  it("has a seek bar of at most 200 steps, whose values are steps, and whose end is the end", () => {
    for (const durationMs of [0, 1, 5510, 10_000, 86_400_000]) {
      for (const at of [0, durationMs / 3, Math.max(0, durationMs - 1), durationMs]) {
        const { max, step, value } = Replay.seekBarOf(at, { durationMs })
        assert.isAtMost(durationMs / step, 200)
        assert.isAtLeast(max, durationMs)
        assert.strictEqual(value % step, 0)
        assert.strictEqual(value === max, at === durationMs)
      }
    }
  })
})
