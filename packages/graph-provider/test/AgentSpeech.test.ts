/** What an agent says, from its bytes: cut anywhere, whatever they are, as much as it likes. */
import * as AgentOutput from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as AgentSpeech from "../src/internal/AgentSpeech.ts"

const whole = AgentOutput.whole((text) => Result.succeed({ text }))

const answerOf = (bytes: ReadonlyArray<Uint8Array>) => {
  const speech = AgentSpeech.make(whole)
  for (const piece of bytes) speech.hear(piece)
  return Result.getOrUndefined(speech.end())?.text
}

describe("AgentSpeech", () => {
  it("a character that is cut, byte by byte, is one; half of one at the end is said to be none", () => {
    const text = "Où? 東京 🏙"
    const bytes = [...new TextEncoder().encode(text)].map((byte) => Uint8Array.of(byte))
    assert.strictEqual(answerOf(bytes), text)
    assert.strictEqual(answerOf(bytes.slice(0, -1)), "Où? 東京 \uFFFD")
    assert.strictEqual(answerOf([Uint8Array.of(0x61, 0xff, 0x62)]), "a\uFFFDb")
  })

  it("the digest is of the events as JSON lines, in their order", () => {
    const [one, other] = [AgentSpeech.makeDigest(), AgentSpeech.makeDigest()]
    one.add([{ type: "text_delta", delta: "a" }])
    one.add([{ type: "done" }])
    other.add([{ type: "done" }, { type: "text_delta", delta: "a" }])
    assert.strictEqual(one.value().count, 2)
    assert.notStrictEqual(one.value().sha256, other.value().sha256)
    assert.strictEqual(one.value().sha256, "609af996b43f8542bf9f040e2d9105f780233173ba05ca35a87a221b3b1543cf")
  })
})
