/** The minimal agent: its command line, and the strict parsing of its output. */
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { read } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"

const envelope = (over: object = {}, meta: object = {}) =>
  JSON.stringify({ payloads: [{ text: "Lima" }], meta: { durationMs: 12, error: null, ...meta }, ...over })

const parse = (output: string) => read(minimal.reader, output)

const failure = (output: string) => {
  const parsed = parse(output)
  assert.isTrue(Result.isFailure(parsed), output)
  return Result.isFailure(parsed) ? parsed.failure : assert.fail()
}

describe("the minimal agent", () => {
  it("is started without arguments, and the prompt in messages.json", () => {
    const task = {
      messages: [{ role: "user", content: 'a "quoted"\nprompt' }],
      model: "m",
      runId: "run-000000000001",
      workingDirectory: "/workspace",
      runtimeSecondsMax: 600
    } as const
    assert.deepStrictEqual(minimal.argv(task), ["cogni-agent"])
    assert.deepStrictEqual(minimal.inputs(task), [
      { name: "messages.json", content: '[{"role":"user","content":"a \\"quoted\\"\\nprompt"}]' }
    ])
  })

  it("answers with the text of its envelope", () => {
    assert.deepStrictEqual(parse(`${envelope()}\n`), Result.succeed({ text: "Lima" }))
    assert.deepStrictEqual(
      parse(
        envelope({}, { model: "demo", usage: { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 } })
      ),
      Result.succeed({ text: "Lima", usage: { inputTokens: 3, outputTokens: 4 } })
    )
  })

  it("reports an error envelope as a failure, and keeps its text", () => {
    const failed = failure(envelope({}, { error: { code: "http_500", message: "The model answered 500" } }))
    assert.strictEqual(failed.code, "http_500")
    assert.strictEqual(failed.textSoFar, "Lima")
    assert.include(failed.message, "The model answered 500")
  })

  it.each([
    ["no output", ""],
    ["blanks", " \n\n"],
    ["plain text", "Lima"],
    ["half an envelope", envelope().slice(0, 30)],
    ["an envelope after noise", `warming up\n${envelope()}`],
    ["two envelopes", `${envelope()}\n${envelope()}`],
    ["no payloads", envelope({ payloads: [] })],
    ["a payload without text", envelope({ payloads: [{}] })],
    ["a text that is not a string", envelope({ payloads: [{ text: 7 }] })],
    ["no meta", envelope({ meta: undefined })],
    ["an error that is a string", envelope({}, { error: "no" })],
    ["an envelope without an error field", envelope({}, { error: undefined })],
    ["an unknown key", envelope({ ok: true })],
    ["a list", `[${envelope()}]`]
  ])("reports %s as unreadable, not as an answer", (_, output) => {
    assert.strictEqual(failure(output).code, "unreadable")
  })

  it.prop("reads any text without throwing, and returns any answer unchanged", [Schema.String], ([text]) => {
    parse(text)
    assert.deepStrictEqual(parse(envelope({ payloads: [{ text }] })), Result.succeed({ text }))
  })
})
