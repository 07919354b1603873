import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as ScriptedUpstream from "../src/testing/ScriptedUpstream.ts"

const ask = (url: string) =>
  Effect.promise(async () => {
    try {
      const answer = await fetch(url, { method: "POST", body: "{}", signal: AbortSignal.timeout(300) })
      try {
        return `${answer.status} ${await answer.text()}`
      } catch {
        return `${answer.status} broken`
      }
    } catch (cause) {
      return (cause as Error).name
    }
  })

describe("ScriptedUpstream", () => {
  it.live("plays its script, and its last step for ever after", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedUpstream.acquire([
        { _tag: "Refuse" },
        { _tag: "Hang" },
        { _tag: "ResetMidStream", events: 2 },
        { _tag: "Html", status: 502 },
        { _tag: "Error", status: 500 },
        { _tag: "SlowStream", events: 2, pauseMillis: 5 },
        { _tag: "Answer", body: "last" }
      ])
      const answers = yield* Effect.forEach(Array.from({ length: 8 }), () => ask(upstream.url))
      assert.deepStrictEqual(answers.slice(0, 3), ["TypeError", "TimeoutError", "200 broken"])
      assert.match(answers[3]!, /^502 <html>/u)
      assert.match(answers[4]!, /^500 .*scripted/u)
      assert.match(answers[5]!, /^200 data: .*\n\ndata: .*\n\ndata: \[DONE\]\n\n$/u)
      assert.deepStrictEqual(answers.slice(6), ["200 last", "200 last"])
      assert.deepStrictEqual(
        (yield* upstream.received).map(({ cut }) => cut),
        [true, true, true, false, false, false, false, false]
      )
    })
  )
})
