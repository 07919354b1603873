/** Codex: what it is started with, and how strictly what it says is read. Recorded from 0.169.0. */
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
  it("is started with options only; the prompt is a file", () => {
    const argv = codex.argv(task)
    assert.deepStrictEqual(argv.slice(0, 4), ["/usr/local/bin/cogni-stdin", promptPath, "codex", "exec"])
    assert.notInclude(argv.join(" "), "secret")
    assert.strictEqual(argv[argv.indexOf("--model") + 1], 'a "quoted" model')
    assert.strictEqual(argv.at(-1), "-", "it reads its standard input")
    assert.deepStrictEqual(codex.inputs(task), [{ name: "prompt.md", content: "a secret prompt" }])
  })

  it("a task: tools in their order, the answer, its own count of tokens", () => {
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

  it("what it says of itself is a status, and ends nothing", () => {
    const heard = play("unknown-model")
    assert.match(Recorded.answerOf(heard).text, /^The nonce: /u)
    const [warning] = heard.events
    assert.isTrue(warning?.type === "status" && warning.phase === "warning")
  })

  it("a command that failed is told, and ends nothing", () => {
    const heard = play("tool-error")
    assert.deepStrictEqual(Recorded.toolsOf(heard), ["start command_execution", "error command_execution"])
    assert.strictEqual(Recorded.answerOf(heard).text, "It is not there.")
  })

  it("a turn that failed is never an answer; the model API's own code is told", () => {
    const { code, detail } = Recorded.failureOf(play("refused"))
    assert.deepStrictEqual([code, detail], ["x", "nope"])
    const retried = play("retries")
    assert.strictEqual(Recorded.failureOf(retried).code, "turn_failed")
    assert.include(Recorded.failureOf(retried).detail, "503")
    assert.strictEqual(retried.events.filter((event) => event.type === "status").length, 7)
    const { textSoFar } = Recorded.failureOf(read(thread(), says("Lima"), failed))
    assert.strictEqual(textSoFar, "Lima")
  })

  it("news of a retry is no failure, and no answer", () => {
    const retry = { type: "error", message: "Reconnecting... 1/5" }
    assert.strictEqual(Recorded.answerOf(read(thread(), retry, says("Lima"), done)).text, "Lima")
    assert.strictEqual(Recorded.failureOf(read(thread(), says("Lima"), retry)).code, "unreadable")
  })

  it("of several messages and turns the last has the word; a failure of any stands", () => {
    const started = { type: "turn.started" }
    const { text, usage } = Recorded.answerOf(read(thread(), says("One moment."), says("Lima"), done))
    assert.deepStrictEqual([text, usage], ["Lima", { inputTokens: 3, outputTokens: 4 }])
    assert.strictEqual(Recorded.answerOf(read(says("a"), done, started, says("b"), done)).text, "b")
    assert.strictEqual(Recorded.failureOf(read(failed, started, says("b"), done)).code, "turn_failed")
    assert.strictEqual(Recorded.failureOf(read(says("a"), done, started, failed)).code, "turn_failed")
  })

  it.each([
    ["nothing", []],
    ["a thread and no more", [thread()]],
    ["a message and no end", [thread(), says("Lima")]],
    ["an end without a word", [thread(), done]],
    [
      "a turn without a word after one with some",
      [thread(), says("a"), done, { type: "turn.started" }, done]
    ],
    ["a message that is no text", [thread(), says(7), done]],
    ["a message that is not done", [thread(), { ...says("Lima"), type: "item.started" }, done]],
    ["two threads", [thread(), says("Lima"), done, thread("u")]],
    ["half an end", [thread(), says("Lima"), JSON.stringify(done).slice(0, -2)]]
  ])("%s is unreadable, not an answer", (_, lines) => {
    assert.strictEqual(Recorded.failureOf(read(...lines)).code, "unreadable")
  })

  it("an end that does not count has no usage", () => {
    for (const usage of [undefined, null, { input_tokens: -1, output_tokens: 0 }, "much"]) {
      const { usage: counted } = Recorded.answerOf(read(says("Lima"), { type: "turn.completed", usage }))
      assert.isUndefined(counted)
    }
  })

  it("tools of a server, and kinds that nobody knows yet, are told by what they say", () => {
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

  it("noise before, between and after is passed over; the last line needs no break", () => {
    const lines = [thread(), says("Lima"), done].map((line) => JSON.stringify(line))
    for (const output of [`Reading…\n${lines.join("\nnoise\n")}\nbye\n`, `[1]\n"x"\n${lines.join("\n")}`])
      assert.strictEqual(Recorded.answerOf(read(output)).text, "Lima")
  })

  it("a hundred thousand lines are read in a moment", () => {
    const line = `${JSON.stringify(item({ type: "command_execution", command: "true", exit_code: 0 }))}\n`
    assert.strictEqual(read(line.repeat(100_000), says("Lima"), done).events.length, 200_001)
    const begun = Array.from({ length: 100_000 }, (_, index) =>
      item({ id: `item_${index}`, type: "command_execution", command: "true" }, "item.started")
    )
    assert.strictEqual(read(...begun).events.length, 100_000)
  })

  it("no field that is another than expected makes it throw", () => {
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

  it.prop("hears the same however it is cut", [Recorded.Places], ([places]) => {
    for (const text of Recorded.recordings("codex")) Recorded.sameHoweverCut(reader, text, places)
  })

  it.prop("reads any of its lines in any order", [Recorded.Places], ([places]) => {
    for (const text of Recorded.recordings("codex"))
      Recorded.neverThrows(reader, [Recorded.shuffled(text, places)])
  })
})
