/** pi: its command line, and the strict parsing of its output. Recorded from 0.87.1. */
import { promptPath } from "@cogni/sandbox-graph-provider/agents/Agent"
import { pi } from "@cogni/sandbox-graph-provider/agents/Pi"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Recorded from "./Recorded.ts"

const { reader } = pi
const read = (...lines: ReadonlyArray<unknown>) =>
  Recorded.hear(
    reader,
    lines.map((line) => (typeof line === "string" ? line : `${JSON.stringify(line)}\n`))
  )
const play = (scene: string) => Recorded.hear(reader, [Recorded.recorded("pi", scene)])

const piece = (delta: string) => ({
  type: "message_update",
  assistantMessageEvent: { type: "text_delta", delta }
})
const message = (text: string, over: object = {}) => ({
  type: "message_end",
  message: { role: "assistant", content: [{ type: "text", text }], stopReason: "stop", ...over }
})
const ended = { type: "agent_end", messages: [], willRetry: false }

const task = {
  messages: [{ role: "user" as const, content: "a secret prompt" }] as const,
  model: "vendor/m:free",
  runId: "run-1",
  workingDirectory: "/workspace/repo",
  runtimeSecondsMax: 60
}

describe("pi", () => {
  it("is started with options only, and the prompt and its only model in files", () => {
    const argv = pi.argv(task)
    assert.deepStrictEqual(argv.slice(0, 3), ["/usr/local/bin/cogni-stdin", promptPath, "pi"])
    assert.notInclude(argv.join(" "), "secret")
    assert.strictEqual(argv[argv.indexOf("--model") + 1], "vendor/m:free")
    assert.include(argv, "--no-session")
    assert.include(pi.env(task), { PI_CODING_AGENT_DIR: "/cogni", PI_OFFLINE: "1" })
    const [models, prompt] = pi.inputs(task)
    assert.deepStrictEqual(prompt, { name: "prompt.md", content: "a secret prompt" })
    assert.strictEqual(models!.name, "models.json")
    assert.deepStrictEqual(JSON.parse(models!.content), {
      providers: {
        cogni: {
          baseUrl: "http://localhost:8080/v1",
          api: "openai-completions",
          apiKey: "none",
          models: [{ id: "vendor/m:free", name: "vendor/m:free" }]
        }
      }
    })
  })

  it("reads a task: its tools, also failed ones, the answer in deltas, its count of tokens", () => {
    const heard = play("task")
    assert.deepStrictEqual(Recorded.toolsOf(heard).toSorted(), [
      "error bash",
      "error read",
      "result edit",
      "result read",
      "start bash",
      "start edit",
      "start read",
      "start read"
    ])
    const { sessionId, text, usage } = Recorded.answerOf(heard)
    assert.strictEqual(text, "Done: nonce-4711 said the tool.")
    assert.strictEqual(Recorded.textOf(heard), text)
    assert.deepStrictEqual(usage, { inputTokens: 410, outputTokens: 28 })
    assert.match(sessionId!, /^[0-9a-f-]{36}$/u)
  })

  it("reports a model that refuses as a failure, although pi exits with 0", () => {
    const { code, detail, textSoFar } = Recorded.failureOf(play("refused"))
    assert.strictEqual(code, "error")
    assert.include(detail, "model said no")
    assert.strictEqual(textSoFar, "")
  })

  it("reports its retries", () => {
    const heard = play("retries")
    assert.strictEqual(Recorded.failureOf(heard).code, "error")
    const labels = heard.events.flatMap((event) => (event.type === "status" ? [event.label] : []))
    assert.deepStrictEqual(labels, ["1 of 3", "2 of 3", "3 of 3"])
  })

  it("reports a truncated answer as a failure, and keeps its text", () => {
    const { code, textSoFar } = Recorded.failureOf(play("cut"))
    assert.strictEqual(code, "length")
    assert.strictEqual(textSoFar, "Done: no-nonce said the tool.")
  })

  it.each([
    ["no output", []],
    ["no end", [message("Lima")]],
    ["half an end", [message("Lima"), `{"type":"agent_e`]],
    ["an end before a retry", [message("Lima"), { ...ended, willRetry: true }]],
    ["a message after the end without another end", [message("a"), ended, message("b")]],
    ["no message", [ended]],
    ["only deltas", [piece("Lima"), ended]],
    ["a message without text", [message(""), ended]],
    ["a message of the user", [message("Lima", { role: "user" }), ended]],
    ["a message in a list", [JSON.stringify([message("Lima")]), ended]]
  ])("reports %s as unreadable, not as an answer", (_, lines) => {
    assert.strictEqual(Recorded.failureOf(read(...lines)).code, "unreadable")
  })

  it("skips noise before, between and after its lines, and needs no last line break", () => {
    const [line, last] = [JSON.stringify(message("Lima")), JSON.stringify(ended)]
    for (const output of [
      `warming up\n${line}\n${last}\nbye\n`,
      `{"type":7}\n[1]\n"x"\n${line}\n{}\n${last}`
    ])
      assert.strictEqual(Recorded.answerOf(read(output)).text, "Lima")
  })

  it("emits a message without deltas as a whole, and does not repeat one with deltas", () => {
    const heard = read(piece("He"), piece("llo"), message("Hello"), message(", you."), ended)
    assert.strictEqual(Recorded.textOf(heard), "Hello, you.")
    assert.strictEqual(Recorded.answerOf(heard).text, ", you.")
    assert.strictEqual(Recorded.failureOf(read(piece("He"))).textSoFar, "He")
  })

  it("omits a count of tokens that is zero or invalid", () => {
    const usage = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }
    assert.notProperty(Recorded.answerOf(read(message("a", { usage }), ended)), "usage")
    assert.notProperty(Recorded.answerOf(read(message("a", { usage: "many" }), ended)), "usage")
  })

  it("reads 100,000 lines", () => {
    const line = `${JSON.stringify(piece("x"))}\n`
    assert.strictEqual(read(line.repeat(100_000), message("x"), ended).events.length, 100_000)
  })

  it("never throws on a field with an unexpected value", () => {
    let events = 0
    for (const text of Recorded.recordings("pi"))
      for (const mutant of Recorded.mutants(text))
        events += Recorded.neverThrows(reader, [`${mutant}\n`]).events.length
    assert.isAbove(events, 0)
  })

  it.prop("reads any text without throwing", [Schema.String, Schema.String], ([one, other]) => {
    Recorded.neverThrows(reader, [one, other])
    if (one !== "") assert.strictEqual(Recorded.answerOf(read(message(one), ended)).text, one)
  })

  it.prop("reads the same however the output is split", [Recorded.Places], ([places]) => {
    for (const scene of ["task", "refused"])
      Recorded.sameHoweverCut(reader, Recorded.recorded("pi", scene), places)
  })

  it.prop("reads its lines in any order without throwing", [Recorded.Places], ([places]) => {
    for (const text of Recorded.recordings("pi"))
      Recorded.neverThrows(reader, [Recorded.shuffled(text, places)])
  })
})
