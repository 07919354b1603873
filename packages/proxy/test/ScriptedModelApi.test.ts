import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Pace from "../../../test/harness/Pace.ts"
import * as ScriptedModelApi from "../src/ScriptedModelApi.ts"

/** Asks the API. Gives up after a moment only if no answer is expected. */
const ask = (url: string, body: object = {}, isAnswered = true) =>
  Effect.promise(async () => {
    try {
      const answer = await fetch(url, {
        method: "POST",
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(isAnswered ? Pace.hangMillis : 300)
      })
      try {
        return `${answer.status} ${await answer.text()}`
      } catch {
        return `${answer.status} broken`
      }
    } catch (cause) {
      return (cause as Error).name
    }
  })

const chat = (tools: ReadonlyArray<string>) => ({
  model: "m",
  messages: [{ role: "user", content: "hello there" }],
  tools: tools.map((name) => ({ type: "function", function: { name } }))
})

describe("ScriptedModelApi", () => {
  it.live("plays its steps, and repeats the last one", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModelApi.acquire({
        script: ScriptedModelApi.steps([
          { _tag: "Refuse" },
          { _tag: "Hang" },
          { _tag: "ResetMidStream", events: 2 },
          { _tag: "Html", status: 502 },
          { _tag: "Error", status: 500 },
          { _tag: "SlowStream", events: 2, pauseMillis: 5 },
          { _tag: "Answer", body: "last" }
        ])
      })
      const answers = yield* Effect.forEach(Array.from({ length: 8 }), (_, index) =>
        ask(upstream.url, {}, index !== 1)
      )
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

  it.live("calls the script for turns that offer tools, and answers other requests itself", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModelApi.acquire({
        raw: true,
        script: ScriptedModelApi.turns(({ index, tools }) =>
          index === 0 ? { call: [{ name: tools[0]!, args: { index } }] } : { refuse: "no more" }
        )
      })
      const url = `${upstream.url}/v1/chat/completions`
      assert.match(yield* ask(url, chat([])), /"content":"Done\."/u)
      assert.match(yield* ask(url, chat(["look"])), /"name":"look","arguments":"\{\\"index\\":0\}"/u)
      assert.match(yield* ask(url, chat(["look"])), /^400 .*no more/u)
      const received = yield* upstream.received
      assert.deepStrictEqual(
        received.map(({ tools, usage }) => [tools.length, usage?.outputTokens]),
        [
          [0, 101],
          [1, 102],
          [1, undefined]
        ]
      )
      assert.strictEqual(received[0]!.body["model"], "m")
    })
  )

  it.live("reports an error that a script throws", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModelApi.acquire({
        script: () => {
          throw new Error("a mistake")
        }
      })
      assert.match(yield* ask(`${upstream.url}/v1/messages`), /^500 /u)
      assert.deepStrictEqual(yield* upstream.problems, ["/v1/messages: Error: a mistake"])
    })
  )
})
