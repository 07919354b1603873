/** Pauses between the placements of a run whose hosts are full. */
import { assert, describe, it } from "@effect/vitest"
import { type Full, pauseSeconds } from "../src/internal/PlacementPause.ts"

const full: Full = {
  placements: 1,
  requestBytes: 10_000,
  placementSecondsMax: 3600,
  passedSeconds: 0,
  historyBytes: 20_000,
  historyEvents: 30
}

/** Places a run until its time is over. Returns how often, in which time, and the size of what was written. */
const played = (over: Partial<Full>) => {
  let { passedSeconds, historyBytes, historyEvents } = { ...full, ...over }
  const { requestBytes } = { ...full, ...over }
  for (let placements = 1; ; placements++) {
    historyBytes += requestBytes
    historyEvents += 20
    const pause = pauseSeconds({ ...full, ...over, placements, passedSeconds, historyBytes, historyEvents })
    if (pause === undefined) return { placements, passedSeconds, historyBytes, historyEvents }
    passedSeconds += pause
  }
}

describe("the pause before the next placement", () => {
  it("grows up to half a minute, and never passes the time of placement", () => {
    const pauses = [1, 2, 3, 4, 5, 2000].map((placements) => pauseSeconds({ ...full, placements }))
    assert.deepStrictEqual(pauses, [1, 4, 16, 30, 30, 30])
    assert.strictEqual(pauseSeconds({ ...full, placements: 7, passedSeconds: 3598.5 }), 1.5)
    assert.isUndefined(pauseSeconds({ ...full, passedSeconds: 3600 }))
  })

  for (const placementSecondsMax of [1, 60, 3600, 7 * 86_400])
    for (const requestBytes of [200, 100_000, 1_500_000])
      it(`uses all of ${placementSecondsMax} s for ${requestBytes} bytes, within the limits of a history`, () => {
        const { historyBytes, historyEvents, passedSeconds, placements } = played({
          placementSecondsMax,
          requestBytes
        })
        assert.strictEqual(passedSeconds, placementSecondsMax)
        assert.isAtMost(placements, 1100)
        assert.isBelow(historyBytes, 50 * 1024 * 1024)
        assert.isBelow(historyEvents, 51_200)
      })

  it("ends before a history is too large, whatever else wrote it", () => {
    assert.isUndefined(pauseSeconds({ ...full, historyBytes: 45 * 1024 * 1024 }))
    assert.isUndefined(pauseSeconds({ ...full, historyEvents: 45_000 }))
  })
})
