/** Claude Code: its command line, and the strict parsing of its output. Recorded from 2.1.330. */
import { promptPath } from "@cogni/sandbox-graph-provider/agents/Agent"
import { claudeCode } from "@cogni/sandbox-graph-provider/agents/ClaudeCode"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { readFileSync } from "node:fs"
import * as Recorded from "./Recorded.ts"

const { reader } = claudeCode
const read = (...lines: ReadonlyArray<unknown>) =>
  Recorded.hear(
    reader,
    lines.map((line) => (typeof line === "string" ? line : `${JSON.stringify(line)}\n`))
  )
const play = (scene: string) => Recorded.hear(reader, [Recorded.recorded("claude-code", scene)])

const result = (over: object = {}) => ({
  type: "result",
  subtype: "success",
  is_error: false,
  result: "Lima",
  session_id: "s",
  ...over
})

const task = {
  messages: [{ role: "user" as const, content: "a secret prompt" }] as const,
  model: "vendor/m",
  runId: "run-1",
  workingDirectory: "/workspace/repo",
  runtimeSecondsMax: 60
}

describe("Claude Code", () => {
  it("is started with options only, the prompt in a file, and the run's model for every role", () => {
    const argv = claudeCode.argv(task)
    assert.deepStrictEqual(argv.slice(0, 3), ["/usr/local/bin/cogni-stdin", promptPath, "claude"])
    assert.notInclude(argv.join(" "), "secret")
    assert.strictEqual(argv[argv.indexOf("--model") + 1], "vendor/m")
    assert.deepStrictEqual(claudeCode.inputs(task), [{ name: "prompt.md", content: "a secret prompt" }])
    const env = claudeCode.env(task)
    for (const [name, value] of Object.entries(env))
      if (name.includes("MODEL")) assert.strictEqual(value, "vendor/m")
    assert.strictEqual(env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"], "1")
  })

  it("is loaded in advance with the variables of a run that are the same for each task", () => {
    const variablesOf = (model: string) => Object.entries(claudeCode.env({ ...task, model }))
    const [one, other] = ["vendor/m", "vendor/n"].map(variablesOf)
    const constants = one!.filter(([name, value], at) => other![at]?.[0] === name && other![at][1] === value)
    const preload = claudeCode.preload ?? []
    assert.sameMembers(preload.slice(1, -2), [
      ...constants.map(([name, value]) => `${name}=${value}`),
      "ANTHROPIC_BASE_URL=http://localhost:8080"
    ])
    assert.deepStrictEqual(
      [preload[0], ...preload.slice(-2)],
      ["/usr/bin/env", "BUN_OPTIONS=--preload=/usr/local/lib/claude-code/preload.mjs", "claude"]
    )
  })

  it("is run by the build of its image as by a run: with the same arguments, variables and preload", () => {
    const warm = { ...task, model: "m", runId: "warm" }
    assert.deepStrictEqual(
      JSON.parse(readFileSync(new URL("../../../images/claude-code/warm.json", import.meta.url), "utf8")),
      { argv: claudeCode.argv(warm), variables: claudeCode.env(warm), preload: claudeCode.preload },
      "change images/claude-code/warm.json too, so that the image loads what a run needs"
    )
  })

  it("distinguishes zero tokens from tokens that it does not report", () => {
    const usage = { m: { inputTokens: 0, outputTokens: 0 } }
    assert.deepStrictEqual(Recorded.answerOf(read(result({ modelUsage: usage }))).usage, {
      inputTokens: 0,
      outputTokens: 0
    })
    assert.isUndefined(Recorded.answerOf(read(result())).usage)
  })

  it("reads a task: tools in order, the answer in deltas, its count of tokens", () => {
    const heard = play("task")
    assert.deepStrictEqual(Recorded.toolsOf(heard), [
      "start Read",
      "result Read",
      "start Edit",
      "result Edit",
      "start Bash",
      "result Bash"
    ])
    const { sessionId, text, usage } = Recorded.answerOf(heard)
    assert.match(text, /^The nonce: [0-9a-f-]{36}$/u)
    assert.strictEqual(Recorded.textOf(heard), text)
    assert.deepStrictEqual(usage, { inputTokens: 4015, outputTokens: 415 })
    assert.match(sessionId!, /^[0-9a-f-]{36}$/u)
  })

  it("excludes a subagent's text from the answer, and includes its tools and tokens", () => {
    const heard = play("subagent")
    assert.strictEqual(Recorded.textOf(heard), "From above.")
    assert.strictEqual(Recorded.answerOf(heard).text, "From above.")
    assert.deepStrictEqual(Recorded.answerOf(heard).usage, { inputTokens: 4015, outputTokens: 415 })
    assert.deepStrictEqual(Recorded.toolsOf(heard), [
      "start Agent",
      "start Bash",
      "result Bash",
      "result Agent"
    ])
  })

  it("answers with the turn that its background work opened, and counts the tokens of both turns", () => {
    const heard = play("background")
    assert.strictEqual(Recorded.textOf(heard), "Started.Finished.")
    const { text, usage } = Recorded.answerOf(heard)
    assert.strictEqual(text, "Finished.")
    assert.deepStrictEqual(usage, { inputTokens: 3007, outputTokens: 307 })
  })

  it("reports a failed tool, and continues", () => {
    const heard = play("tool-error")
    assert.deepStrictEqual(Recorded.toolsOf(heard), ["start Read", "error Read"])
    assert.strictEqual(Recorded.answerOf(heard).text, "It is not there.")
  })

  it("never treats an error as an answer, even if its result says success and contains text", () => {
    const refused = play("refused")
    const { code, detail } = Recorded.failureOf(refused)
    assert.deepStrictEqual([code, detail], ["invalid_request_error", "API Error: 400 nope"])
    // Text that Claude Code writes in place of the model is not part of the answer either.
    assert.strictEqual(Recorded.textOf(refused), "")
    const retried = play("retries")
    assert.strictEqual(Recorded.failureOf(retried).code, "rate_limit_error")
    const statuses = retried.events.flatMap((event) => (event.type === "status" ? [event] : []))
    assert.deepStrictEqual(statuses[0], {
      type: "status",
      phase: "model_retry",
      label: "1 of 10: rate_limit"
    })
    assert.strictEqual(statuses.length, 10)
  })

  it.each([
    [
      "with too many turns",
      { subtype: "error_max_turns", is_error: true, result: undefined },
      "error_max_turns"
    ],
    ["with an error only in its subtype", { subtype: "error_during_execution" }, "error_during_execution"],
    ["without a reason", { is_error: true, result: "" }, "error"],
    ["from a model that refuses", { is_error: true, terminal_reason: "refusal" }, "refusal"],
    [
      "with several errors",
      { subtype: "error_x", is_error: true, errors: ["a", 1, "b"], result: null },
      "error_x"
    ]
  ])("reports an end %s as the agent's failure", (_, over, code) => {
    assert.strictEqual(Recorded.failureOf(read(result(over))).code, code)
  })

  it("treats an error in any turn as final", () => {
    const failed = result({ is_error: true, api_error_type: "overloaded_error" })
    assert.strictEqual(Recorded.failureOf(read(failed, result())).code, "overloaded_error")
    assert.strictEqual(Recorded.failureOf(read(result(), failed)).code, "overloaded_error")
  })

  it.each([
    ["no output", []],
    ["no result", [{ type: "system", subtype: "init", session_id: "s" }]],
    ["a result without text", [result({ result: null })]],
    ["an invalid result", [result({ is_error: "no" })]],
    ["half a result", [JSON.stringify(result()).slice(0, -3)]],
    ["a result in a list", [`[${JSON.stringify(result())}]`]],
    ["results of two sessions", [result(), result({ session_id: "t" })]],
    ["a result of another session", [{ type: "system", subtype: "init", session_id: "t" }, result()]]
  ])("reports %s as unreadable, not as an answer", (_, lines) => {
    assert.strictEqual(Recorded.failureOf(read(...lines)).code, "unreadable")
  })

  it("skips noise before, between and after its lines, and needs no last line break", () => {
    const line = JSON.stringify(result())
    for (const output of [`warming up\n${line}\n`, `${line}\nbye\n`, `{"type":7}\n[1]\n"x"\n${line}`])
      assert.strictEqual(Recorded.answerOf(read(output)).text, "Lima")
  })

  it("emits a message without deltas as a whole, and does not repeat one with deltas", () => {
    const message = (id: string, text: string) => ({
      type: "assistant",
      parent_tool_use_id: null,
      message: { id, content: [{ type: "text", text }] }
    })
    const begun = (id: string) => ({
      type: "stream_event",
      event: { type: "message_start", message: { id } }
    })
    const piece = (text: string) => ({
      type: "stream_event",
      event: { type: "content_block_delta", delta: { type: "text_delta", text } }
    })
    const heard = read(
      begun("a"),
      piece("He"),
      piece("llo"),
      message("a", "Hello"),
      message("b", ", you."),
      result()
    )
    assert.strictEqual(Recorded.textOf(heard), "Hello, you.")
    assert.strictEqual(Recorded.failureOf(read(begun("a"), piece("He"))).textSoFar, "He")
  })

  it("reads 100,000 lines", () => {
    const line = `{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}}\n`
    const heard = read(line.repeat(100_000), result())
    assert.strictEqual(heard.events.length, 100_000)
  })

  it("never throws on a field with an unexpected value", () => {
    let events = 0
    for (const text of Recorded.recordings("claude-code"))
      for (const mutant of Recorded.mutants(text))
        events += Recorded.neverThrows(reader, [`${mutant}\n`]).events.length
    assert.isAbove(events, 0)
  })

  it.prop("reads any text without throwing", [Schema.String, Schema.String], ([one, other]) => {
    Recorded.neverThrows(reader, [one, other])
    assert.strictEqual(Recorded.answerOf(read(result({ result: one }))).text, one)
  })

  it.prop("reads the same however the output is split", [Recorded.Places], ([places]) => {
    for (const scene of ["task", "background"])
      Recorded.sameHoweverCut(reader, Recorded.recorded("claude-code", scene), places)
  })

  it.prop("reads its lines in any order without throwing", [Recorded.Places], ([places]) => {
    for (const text of Recorded.recordings("claude-code"))
      Recorded.neverThrows(reader, [Recorded.shuffled(text, places)])
  })
})
