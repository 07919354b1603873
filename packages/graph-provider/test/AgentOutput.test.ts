/** Parsing of an agent's output: in any pieces, of any length, with any content. */
import { Agent } from "@cogni/sandbox-graph-provider"
import * as AgentOutput from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"

/** Emits every `text` of its lines, and answers with the last one. */
const echo = AgentOutput.jsonLines<string | undefined>({
  initial: undefined,
  line: (last, value) => {
    const { text } = value as { readonly text?: unknown }
    return typeof text === "string" ? [[{ type: "text_delta", delta: text }], text] : [[], last]
  },
  end: (last) =>
    last === undefined ? AgentOutput.unreadable("nothing was said") : Result.succeed({ text: last })
})

const feed = (reader: AgentOutput.AgentReader, pieces: ReadonlyArray<string>) => {
  let at = reader
  const events = pieces.flatMap((piece) => {
    const [found, next] = at.feed(piece)
    at = next
    return found
  })
  return { events, end: at.end() }
}

const cut = (text: string, cuts: ReadonlyArray<number>) => {
  const at = [...new Set(cuts.map((value) => Math.abs(value) % (text.length + 1)))].toSorted((a, b) => a - b)
  return [...at, text.length].map((end, index) => text.slice(index === 0 ? 0 : at[index - 1], end))
}

describe("Agent.readers", () => {
  it("are enough for the reader of an agent outside this repository", () => {
    const { answered, failed, jsonLines, whole } = Agent.readers
    const lines: Agent.Agent["reader"] = jsonLines<string>({
      initial: "",
      line: (said, value) => {
        const { text } = value as { readonly text: string }
        return [[{ type: "text_delta", delta: text }], `${said}${text}`]
      },
      end: (said) => (said === "" ? failed("silent", "it said nothing") : answered(said, {}))
    })
    const { end, events } = feed(lines, ['{"text":"a"}\n{"te', 'xt":"b"}\n'])
    assert.deepStrictEqual(events, [
      { type: "text_delta", delta: "a" },
      { type: "text_delta", delta: "b" }
    ])
    assert.deepStrictEqual(end, Result.succeed({ text: "ab" }))
    assert.isTrue(Result.isFailure(feed(lines, []).end))
    const document: Agent.Agent["reader"] = whole((output) => answered(output.trim(), {}))
    assert.deepStrictEqual(feed(document, [" a", "b "]).end, Result.succeed({ text: "ab" }))
  })
})

describe("AgentOutput", () => {
  it("reads lines, skips those that are not objects, and accepts a last line without a line break", () => {
    const read = feed(echo, ['{"text":"a"}\nnoise\n[1]\n{"tex', 't":"b"}\n{broken\n{"text":"c"}'])
    // The last line is read at the end, which returns no events.
    assert.deepStrictEqual(
      read.events.map((event) => event.type === "text_delta" && event.delta),
      ["a", "b"]
    )
    assert.deepStrictEqual(read.end, Result.succeed({ text: "c" }))
  })

  it("skips a line that is too long, and reports it if there is no answer", () => {
    const long = `{"text":"${"x".repeat(AgentOutput.lineCharsMax)}"}\n`
    assert.deepStrictEqual(feed(echo, [long, '{"text":"a"}\n']).end, Result.succeed({ text: "a" }))
    const { end } = feed(echo, [long.slice(0, 1000), long.slice(1000)])
    assert.include(Result.isFailure(end) ? end.failure.detail : "", "1 of its lines were longer")
  })

  it("rejects an output that is too long to be parsed as a whole", () => {
    const whole = AgentOutput.whole((text) => Result.succeed({ text }))
    assert.deepStrictEqual(feed(whole, ["a", "b"]).end, Result.succeed({ text: "ab" }))
    const piece = "x".repeat(1024 * 1024)
    const { end } = feed(
      whole,
      Array.from({ length: 17 }, () => piece)
    )
    assert.isTrue(Result.isFailure(end))
  })

  it("skips lines that are JSON but not objects", () => {
    const lines = ["null", "1", '"x"', "[1]", '[{"text":"a"}]', "true"].join("\r\n")
    const handed: Array<unknown> = []
    const reader = AgentOutput.jsonLines<undefined>({
      initial: undefined,
      line: (_, value) => {
        handed.push(value)
        return [[], undefined]
      },
      end: () => Result.succeed({ text: "" })
    })
    feed(reader, [`${lines}\r\n {"text":"b"}\r\n`])
    assert.deepStrictEqual(handed, [{ text: "b" }])
  })

  it("keeps no state between two runs of one reader", () => {
    feed(echo, ['{"text":"a"}\n'])
    assert.isTrue(Result.isFailure(feed(echo, [""]).end))
  })

  it.prop(
    "reads the same however the output is split",
    [Schema.Array(Schema.String), Schema.Array(Schema.Int)],
    ([texts, cuts]) => {
      const output = texts.map((text) => `${JSON.stringify({ text })}\n${text}\n`).join("")
      assert.deepStrictEqual(feed(echo, cut(output, cuts)), feed(echo, [output]))
    },
    { arbitrary: { runs: 500, seed: "cuts-1" } }
  )
})
