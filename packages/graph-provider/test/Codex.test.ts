/** Codex: its command line, and the strict parsing of its output. Recorded from 0.169.0. */
import { promptPath } from "@cogni/sandbox-graph-provider/agents/Agent"
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Recorded from "./Recorded.ts"

const { reader } = codex
const read = (...lines: ReadonlyArray<unknown>) =>
  Recorded.hear(
    reader,
    lines.map((line) => (typeof line === "string" ? line : `${JSON.stringify(line)}\n`))
  )
const play = (scene: string) => Recorded.hear(reader, [Recorded.recorded("codex", scene)])

const thread = (id = "t") => ({ type: "thread.started", thread_id: id })
const item = (fields: object, type = "item.completed") => ({ type, item: { id: "item_1", ...fields } })
const says = (text: unknown) => item({ type: "agent_message", text })
const done = { type: "turn.completed", usage: { input_tokens: 3, output_tokens: 4 } }
const failed = { type: "turn.failed", error: { message: "no" } }

const task = {
  messages: [{ role: "user" as const, content: "a secret prompt" }] as const,
  model: 'a "quoted" model',
  runId: "run-1",
  workingDirectory: "/workspace/repo",
  runtimeSecondsMax: 60
}

describe("Codex", () => {
  it("is started with options only, and the prompt in a file", () => {
    const argv = codex.argv(task)
    assert.deepStrictEqual(argv.slice(0, 4), ["/usr/local/bin/cogni-stdin", promptPath, "codex", "exec"])
    assert.notInclude(argv.join(" "), "secret")
    assert.strictEqual(argv[argv.indexOf("--model") + 1], 'a "quoted" model')
    assert.strictEqual(argv.at(-1), "-", "it reads its standard input")
    assert.deepStrictEqual(codex.inputs(task), [{ name: "prompt.md", content: "a secret prompt" }])
  })

  it("reads a task: tools in order, the answer, its count of tokens", () => {
    const heard = play("task")
    assert.deepStrictEqual(Recorded.toolsOf(heard), [
      "start command_execution",
      "result command_execution",
      "start file_change",
      "result file_change",
      "start command_execution",
      "result command_execution"
    ])
    const { sessionId, text, usage } = Recorded.answerOf(heard)
    assert.match(text, /^The nonce: [0-9a-f-]{36}$/u)
    assert.strictEqual(Recorded.textOf(heard), text)
    assert.deepStrictEqual(usage, { inputTokens: 4015, outputTokens: 415 })
    assert.match(sessionId!, /^[0-9a-f-]{36}$/u)
  })

  it("reports a warning as a status, and continues", () => {
    const heard = play("unknown-model")
    assert.match(Recorded.answerOf(heard).text, /^The nonce: /u)
    const [warning] = heard.events
    assert.isTrue(warning?.type === "status" && warning.phase === "warning")
  })

  it("reports a failed command, and continues", () => {
    const heard = play("tool-error")
    assert.deepStrictEqual(Recorded.toolsOf(heard), ["start command_execution", "error command_execution"])
    assert.strictEqual(Recorded.answerOf(heard).text, "It is not there.")
  })

  it("never treats a failed turn as an answer, and reports the model API's own code", () => {
    const { code, detail } = Recorded.failureOf(play("refused"))
    assert.deepStrictEqual([code, detail], ["x", "nope"])
    const retried = play("retries")
    assert.strictEqual(Recorded.failureOf(retried).code, "turn_failed")
    assert.include(Recorded.failureOf(retried).detail, "503")
    assert.strictEqual(retried.events.filter((event) => event.type === "status").length, 7)
    const { textSoFar } = Recorded.failureOf(read(thread(), says("Lima"), failed))
    assert.strictEqual(textSoFar, "Lima")
  })

  it("treats a retry as neither a failure nor an answer", () => {
    const retry = { type: "error", message: "Reconnecting... 1/5" }
    assert.strictEqual(Recorded.answerOf(read(thread(), retry, says("Lima"), done)).text, "Lima")
    assert.strictEqual(Recorded.failureOf(read(thread(), says("Lima"), retry)).code, "unreadable")
  })

  it("answers with the last message of the last turn, and treats a failure in any turn as final", () => {
    const started = { type: "turn.started" }
    const { text, usage } = Recorded.answerOf(read(thread(), says("One moment."), says("Lima"), done))
    assert.deepStrictEqual([text, usage], ["Lima", { inputTokens: 3, outputTokens: 4 }])
    assert.strictEqual(Recorded.answerOf(read(says("a"), done, started, says("b"), done)).text, "b")
    assert.strictEqual(Recorded.failureOf(read(failed, started, says("b"), done)).code, "turn_failed")
    assert.strictEqual(Recorded.failureOf(read(says("a"), done, started, failed)).code, "turn_failed")
  })

  it.each([
    ["no output", []],
    ["a thread without a turn", [thread()]],
    ["a message without an end", [thread(), says("Lima")]],
    ["an end without a message", [thread(), done]],
    [
      "a turn without a message after one with a message",
      [thread(), says("a"), done, { type: "turn.started" }, done]
    ],
    ["a message that is not text", [thread(), says(7), done]],
    ["an unfinished message", [thread(), { ...says("Lima"), type: "item.started" }, done]],
    ["two threads", [thread(), says("Lima"), done, thread("u")]],
    ["half an end", [thread(), says("Lima"), JSON.stringify(done).slice(0, -2)]]
  ])("reports %s as unreadable, not as an answer", (_, lines) => {
    assert.strictEqual(Recorded.failureOf(read(...lines)).code, "unreadable")
  })

  it("omits an invalid count of tokens", () => {
    for (const usage of [undefined, null, { input_tokens: -1, output_tokens: 0 }, "much"]) {
      const { usage: counted } = Recorded.answerOf(read(says("Lima"), { type: "turn.completed", usage }))
      assert.isUndefined(counted)
    }
  })

  it("reports MCP tools and unknown kinds of items as tool calls", () => {
    const call = { type: "mcp_tool_call", server: "core", tool: "time", arguments: { zone: "UTC" } }
    const heard = read(
      item({ ...call, status: "in_progress" }, "item.started"),
      item({ ...call, status: "failed", error: { message: "gone" } }),
      item({ id: "item_2", type: "teleport", to: "Lima", status: "completed" }),
      says("There."),
      done
    )
    assert.deepStrictEqual(heard.events.slice(0, 4), [
      { type: "tool_call_start", toolCallId: "item_1", toolName: "core.time", args: { zone: "UTC" } },
      { type: "tool_call_result", toolCallId: "item_1", result: { message: "gone" }, isError: true },
      { type: "tool_call_start", toolCallId: "item_2", toolName: "teleport", args: { to: "Lima" } },
      { type: "tool_call_result", toolCallId: "item_2", result: "completed" }
    ])
  })

  it("skips noise before, between and after its lines, and needs no last line break", () => {
    const lines = [thread(), says("Lima"), done].map((line) => JSON.stringify(line))
    for (const output of [`Reading…\n${lines.join("\nnoise\n")}\nbye\n`, `[1]\n"x"\n${lines.join("\n")}`])
      assert.strictEqual(Recorded.answerOf(read(output)).text, "Lima")
  })

  it("reads 100,000 lines", () => {
    const line = `${JSON.stringify(item({ type: "command_execution", command: "true", exit_code: 0 }))}\n`
    assert.strictEqual(read(line.repeat(100_000), says("Lima"), done).events.length, 200_001)
    const begun = Array.from({ length: 100_000 }, (_, index) =>
      item({ id: `item_${index}`, type: "command_execution", command: "true" }, "item.started")
    )
    assert.strictEqual(read(...begun).events.length, 100_000)
  })

  it("never throws on a field with an unexpected value", () => {
    let events = 0
    for (const text of Recorded.recordings("codex"))
      for (const mutant of Recorded.mutants(text))
        events += Recorded.neverThrows(reader, [`${mutant}\n`]).events.length
    assert.isAbove(events, 0)
  })

  it.prop("reads any text without throwing", [Schema.String, Schema.String], ([one, other]) => {
    Recorded.neverThrows(reader, [one, other])
    assert.strictEqual(Recorded.answerOf(read(says(one), done)).text, one)
  })

  it.prop("reads the same however the output is split", [Recorded.Places], ([places]) => {
    for (const text of Recorded.recordings("codex")) Recorded.sameHoweverCut(reader, text, places)
  })

  it.prop("reads its lines in any order without throwing", [Recorded.Places], ([places]) => {
    for (const text of Recorded.recordings("codex"))
      Recorded.neverThrows(reader, [Recorded.shuffled(text, places)])
  })
})
