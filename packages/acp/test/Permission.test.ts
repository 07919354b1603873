/** Permissions for tool calls that a client's user gives. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Permission from "../src/internal/Permission.ts"
import { connected, end, optionsOf, type Run } from "./Connected.ts"

describe("a call that needs a permission", () => {
  const question = {
    id: "apr-1",
    title: "github__comment (external_side_effect)",
    arguments: '{"text":"hi"}'
  }
  const answering: Run = ({ ask }) =>
    Effect.map(ask(question), (isAllowed) => end(isAllowed ? "allowed" : "not allowed"))

  it.effect.each([
    ["allowed", { outcome: "selected", optionId: "allow" }],
    ["not allowed", { outcome: "selected", optionId: "deny" }],
    ["not allowed", { outcome: "selected", optionId: "other" }],
    ["not allowed", { outcome: "cancelled" }]
  ] as const)("is %s by the answer %j of the user", ([expected, outcome]) =>
    Effect.gen(function* () {
      const asked: Array<unknown> = []
      const { prompt, said, session } = yield* connected(optionsOf(answering), false, (request) => {
        asked.push(request)
        return { outcome }
      })
      const sessionId = yield* session
      yield* prompt(sessionId, "comment")
      assert.strictEqual(said(), expected)
      assert.containSubset(asked, [
        {
          sessionId,
          toolCall: {
            toolCallId: "apr-1",
            title: "github__comment (external_side_effect)",
            content: [{ type: "content", content: { type: "text", text: '```json\n{"text":"hi"}\n```' } }]
          }
        }
      ])
    })
  )

  it.effect("is not allowed by a client that cannot ask", () =>
    Effect.gen(function* () {
      const { prompt, said, session } = yield* connected(optionsOf(answering))
      yield* prompt(yield* session, "comment")
      assert.strictEqual(said(), "not allowed")
    })
  )

  it("shows the whole arguments: no Markdown, no hidden character, no end of the fence", () => {
    const shown = Permission.fenced(
      '{"text":"```` <!-- ![x](https://evil.example) --> \u202e\ufe0f\u{e0041}"}'
    )
    assert.strictEqual(
      shown,
      '`````json\n{"text":"```` <!-- ![x](https://evil.example) --> \\u202e\\ufe0f\\udb40\\udc41"}\n`````'
    )
  })
})
