/** Valid messages. */
import { assert, describe, it } from "@effect/vitest"
import * as Orchestrator from "@cogni/sandbox-sessions/router/Orchestrator"
import { Schema } from "effect"

const is = Schema.is(Orchestrator.Message)

describe("a message", () => {
  it("has a channel, a sender and a text", () => {
    assert.isTrue(is({ channel: "telegram", senderId: "-100:7", text: "" }))
    assert.isTrue(is({ channel: "a b", senderId: "Ana Ünal 😀", text: "\0\n", messageId: "1" }))
  })

  it.each([
    {},
    { channel: "x", senderId: "y" },
    { channel: "x", senderId: 1, text: "" },
    { channel: "\u0085", senderId: "y", text: "" },
    { channel: "x", senderId: "y\u007f", text: "" }
  ])("is not %j", (value) => assert.isFalse(is(value)))

  it("fails with a cause and a remedy", () => {
    const error = new Orchestrator.OrchestratorFailed({ detail: "no", remedy: "Wait", isRetryable: true })
    assert.strictEqual(error.message, "no. Wait")
  })
})
