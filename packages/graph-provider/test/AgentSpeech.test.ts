/** Decoding of an agent's output: any bytes, split anywhere. */
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
  it("joins characters that are split between pieces, and replaces incomplete ones with U+FFFD", () => {
    const text = "Où? 東京 🏙"
    const bytes = [...new TextEncoder().encode(text)].map((byte) => Uint8Array.of(byte))
    assert.strictEqual(answerOf(bytes), text)
    assert.strictEqual(answerOf(bytes.slice(0, -1)), "Où? 東京 \uFFFD")
    assert.strictEqual(answerOf([Uint8Array.of(0x61, 0xff, 0x62)]), "a\uFFFDb")
  })
})
