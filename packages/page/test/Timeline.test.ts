/** Tests the timeline of a run: what it did when. */
import { assert, describe, it } from "@effect/vitest"
import type { Step } from "../src/RunFeed.ts"
import type { Run } from "../src/RunModel.ts"
import * as Timeline from "../src/Timeline.ts"

const begin = Date.parse("2026-11-26T04:00:00.000Z")
const at = (millis: number) => new Date(begin + millis).toISOString()

const run = (over: Partial<Run> = {}): Run => ({
  runId: "run-12345678",
  status: "running",
  startedAt: at(0),
  timings: [],
  ...over
})

const phase = (label: string, from: number, to: number): Step => ({
  id: label,
  kind: "phase",
  label,
  from: begin + from,
  to: begin + to
})

const started = [phase("create", 10, 20), phase("entrypoint", 20, 50)]

const barsOf = (over: Partial<Timeline.TimelineSource>, now: number) =>
  Timeline.barsOf({ run: run(), feed: { steps: [] }, calls: [], tools: [], ...over }, begin + now).map(
    ({ isError, isOpen, label, span }) => [label, ...span, isOpen, isError]
  )

describe("the timeline", () => {
  it("shows the agent at work from its first instruction until now", () => {
    assert.deepStrictEqual(barsOf({ feed: { steps: started } }, 900), [
      ["create", 10, 20, false, false],
      ["entrypoint", 20, 50, false, false],
      ["agent", 50, 900, true, false]
    ])
  })

  it("shows it until the end of a run that was interrupted, and not twice", () => {
    const ended = run({ status: "interrupted", endedAt: at(700) })
    assert.deepInclude(barsOf({ run: ended, feed: { steps: started } }, 900), [
      "agent",
      50,
      700,
      false,
      false
    ])
    const steps = [...started, phase("agent", 50, 600)]
    assert.lengthOf(barsOf({ run: ended, feed: { steps } }, 900), 3)
  })

  it("does not show the agent of a run that ended before its first instruction", () => {
    const steps = [phase("create", 10, 20)]
    assert.lengthOf(barsOf({ run: run({ status: "failed", endedAt: at(30) }), feed: { steps } }, 900), 1)
  })

  it("puts phases without a journal one after the other, and marks what failed", () => {
    const timings = [
      { phase: "create", durationMs: 30 },
      { phase: "agent", durationMs: 200 }
    ]
    const call = { at: at(40), requestId: "r", method: "POST", path: "/v1", status: 429, requestBytes: 1 }
    assert.deepStrictEqual(
      barsOf(
        {
          run: run({ status: "failed", endedAt: at(240), timings }),
          calls: [{ ...call, durationMs: 60 }],
          tools: [{ source: "host", tool: "search", at: at(120), durationMs: 5, outcome: "refused" }]
        },
        900
      ),
      [
        ["create", 0, 30, false, false],
        ["agent", 30, 230, false, false],
        ["/v1", 40, 100, false, true],
        ["search", 120, 125, false, true]
      ]
    )
  })

  it(`shows at most ${Timeline.barsMax} bars`, () => {
    const steps = Array.from({ length: Timeline.barsMax + 1 }, (_, n) => phase(`p${n}`, n, n + 1))
    assert.lengthOf(barsOf({ feed: { steps } }, 900), Timeline.barsMax)
  })

  it("shows the phases and the end of a long run, and says how much is missing", () => {
    const tool = (n: number): Step => ({ ...phase(`t${n}`, 100 + n, 101 + n), kind: "tool" })
    const feed = { steps: [...started, ...Array.from({ length: 300 }, (_, n) => tool(n))] }
    const labels = barsOf({ feed }, 900).map(([label]) => label)
    assert.deepStrictEqual(labels.slice(0, 4), ["create", "entrypoint", "agent", "t103"])
    assert.deepStrictEqual([labels.length, labels.at(-1)], [Timeline.barsMax, "t299"])
    const hidden = Timeline.hiddenBars({ run: run(), feed, calls: [], tools: [] }, begin + 900)
    assert.strictEqual(hidden, 103)
  })
})
