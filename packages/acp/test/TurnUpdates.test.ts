/** Updates of what an agent reports. Its output is untrusted. */
import * as TurnUpdates from "../src/internal/TurnUpdates.ts"
import { assert, describe, it } from "@effect/vitest"

const facts: TurnUpdates.TurnFacts = {
  number: 3,
  shared: { outside: "/srv/project", inside: "/workspace" },
  notices: false
}

const call = (toolName: string, args: unknown, more: Partial<TurnUpdates.TurnFacts> = {}) => {
  const [update] = TurnUpdates.of(
    { type: "tool_call_start", toolCallId: "x", toolName, args },
    { ...facts, ...more }
  )
  return update?.sessionUpdate === "tool_call" ? update : assert.fail("not a tool call")
}

const shownOf = (result: unknown) => {
  const [update] = TurnUpdates.of({ type: "tool_call_result", toolCallId: "x", result }, facts)
  const [content] = (update?.sessionUpdate === "tool_call_update" && update.content) || []
  return content?.type === "content" && content.content.type === "text" ? content.content.text : undefined
}

describe("an update of a tool call", () => {
  it.each([
    ["/workspace/src/a.ts", "/srv/project/src/a.ts"],
    ["src/a.ts", "/srv/project/src/a.ts"],
    ["/workspace/../etc/passwd", undefined],
    ["../../etc/passwd", undefined],
    ["/etc/passwd", undefined],
    ["/workspace", undefined],
    ["a\0b", undefined]
  ])("shows the file %j at %j", (path, shown) => {
    assert.deepStrictEqual(call("Read", { file_path: path }).locations?.[0]?.path, shown)
  })

  it("shows no file of a copy", () => {
    assert.isUndefined(call("Read", { path: "a.ts" }, { shared: undefined }).locations)
  })

  it.each([
    ["Bash", "execute"],
    ["apply_patch", "edit"],
    ["read", "read"],
    ["server.tool", "other"],
    ["__proto__", "other"],
    ["constructor", "other"]
  ])("gives %s the kind %s", (name, kind) => {
    assert.strictEqual(call(name, {}).kind, kind)
  })

  it("has a title of one line, and an ID of limited length that is unique in the session", () => {
    const { title } = call("Bash", { command: `a\n${"b".repeat(10_000)}` })
    assert.match(title, /^a b+…$/u)
    assert.isAtMost(title.length, 200)
    assert.strictEqual(call("", {}).title, "tool")
    const [update] = TurnUpdates.of(
      { type: "tool_call_start", toolCallId: "y".repeat(10_000), toolName: "t", args: {} },
      facts
    )
    assert.match((update as { toolCallId: string }).toolCallId, /^3:y{200}$/u)
  })

  it("omits arguments that are too long, and cuts results with a note", () => {
    const long = "z".repeat(TurnUpdates.resultCharsMax + 1)
    assert.isUndefined(call("Write", { content: long }).rawInput)
    assert.strictEqual(
      shownOf(long),
      `${"z".repeat(TurnUpdates.resultCharsMax)}\n[cut: ${long.length} characters in all]`
    )
    assert.isUndefined(shownOf(""))
  })
})

describe("an update of text", () => {
  it("divides long text, and never inside a character", () => {
    const whole = `a${"😀".repeat(TurnUpdates.chunkCharsMax)}`
    const pieces = TurnUpdates.text(whole).map((update) =>
      update.sessionUpdate === "agent_message_chunk" && update.content.type === "text"
        ? update.content.text
        : ""
    )
    assert.isAbove(pieces.length, 1)
    assert.strictEqual(pieces.join(""), whole)
    for (const piece of pieces) {
      assert.isAtMost(piece.length, TurnUpdates.chunkCharsMax)
      assert.isTrue(piece.isWellFormed())
    }
  })

  it("shows notes as notices to clients that have them, and in the answer to others", () => {
    assert.deepStrictEqual(TurnUpdates.note({ notices: true }, "warning", "spent"), [
      { sessionUpdate: "notice", severity: "warning", title: "spent" }
    ])
    assert.include(JSON.stringify(TurnUpdates.note(facts, "warning", "spent")), "> cogni-sandbox: spent")
  })

  it("shows the status of an agent only as a notice", () => {
    const status = { type: "status", phase: "model_retry", label: "1 of 3" } as const
    assert.deepStrictEqual(TurnUpdates.of(status, facts), [])
    assert.deepStrictEqual(TurnUpdates.of(status, { ...facts, notices: true }), [
      { sessionUpdate: "notice", severity: "info", title: "model_retry: 1 of 3" }
    ])
  })
})
