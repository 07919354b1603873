/** opencode: its command line, and the strict parsing of its output. Recorded from 1.18.18. */
import { promptPath } from "@cogni/sandbox-graph-provider/agents/Agent"
import { openCode } from "@cogni/sandbox-graph-provider/agents/OpenCode"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Recorded from "./Recorded.ts"

const { reader } = openCode
const read = (...lines: ReadonlyArray<unknown>) =>
  Recorded.hear(
    reader,
    lines.map((line) => (typeof line === "string" ? line : `${JSON.stringify(line)}\n`))
  )
const play = (scene: string) => Recorded.hear(reader, [Recorded.recorded("opencode", scene)])

const text = (value: string, messageID = "m", sessionID = "s") => ({
  type: "text",
  sessionID,
  part: { messageID, text: value }
})
const finish = (over: object = {}, sessionID = "s") => ({
  type: "step_finish",
  sessionID,
  part: { messageID: "m", reason: "stop", ...over }
})

const task = {
  messages: [{ role: "user" as const, content: "a secret prompt" }] as const,
  model: "vendor/m:free",
  runId: "run-1",
  workingDirectory: "/workspace/repo",
  runtimeSecondsMax: 60
}

describe("opencode", () => {
  it("is started with options only, the run's model for every role, and no network access", () => {
    const argv = openCode.argv(task)
    assert.deepStrictEqual(argv.slice(0, 3), ["/usr/local/bin/cogni-stdin", promptPath, "opencode"])
    assert.notInclude(argv.join(" "), "secret")
    assert.strictEqual(argv[argv.indexOf("--model") + 1], "cogni/vendor/m:free")
    assert.strictEqual(argv[argv.indexOf("--title") + 1], "run-1")
    const [config, prompt] = openCode.inputs(task)
    assert.deepStrictEqual(prompt, { name: "prompt.md", content: "a secret prompt" })
    assert.strictEqual(`/cogni/${config!.name}`, openCode.env(task)["OPENCODE_CONFIG"])
    const { model, permission, provider, small_model: small, ...others } = JSON.parse(config!.content)
    assert.deepStrictEqual([model, small], ["cogni/vendor/m:free", "cogni/vendor/m:free"])
    assert.deepStrictEqual(Object.keys(provider), ["cogni"])
    assert.deepStrictEqual(Object.keys(provider.cogni.models), ["vendor/m:free"])
    assert.strictEqual(provider.cogni.options.baseURL, "http://localhost:8080/v1")
    assert.include(permission, { "*": "allow", webfetch: "deny", websearch: "deny" })
    assert.include(others, { autoupdate: false, lsp: false, share: "disabled", snapshot: false })
    assert.deepStrictEqual(others.enabled_providers, ["cogni"])
  })

  it("is loaded in advance with exactly the variables of a run, and nothing of a task", () => {
    const preload = openCode.preload ?? []
    const variables = Object.entries(openCode.env(task)).map(([name, value]) => `${name}=${value}`)
    assert.sameMembers(preload.slice(1, -2), variables)
    assert.deepStrictEqual(
      [preload[0], ...preload.slice(-2)],
      ["/usr/bin/env", "BUN_INSPECT_PRELOAD=/usr/local/lib/cogni/opencode-preload.mjs", "opencode"]
    )
  })

  it("keeps its database in memory only without a session", () => {
    const session = { id: "s1", directory: "/workspace/.session", isNew: true }
    assert.strictEqual(openCode.env(task)["OPENCODE_DB"], ":memory:")
    assert.notProperty(openCode.env({ ...task, session }), "OPENCODE_DB")
    assert.strictEqual(openCode.env({ ...task, session })["XDG_DATA_HOME"], "/workspace/.session")
  })

  it("reads a task: tools in order, also failed ones, whole messages, its count of tokens", () => {
    const heard = play("task")
    assert.deepStrictEqual(Recorded.toolsOf(heard), [
      "start read",
      "result read",
      "start edit",
      "result edit",
      "start read",
      "error read",
      "start bash",
      "result bash"
    ])
    const { sessionId, text: answer, usage } = Recorded.answerOf(heard)
    assert.strictEqual(answer, "Done: nonce-4711 said the tool.")
    assert.strictEqual(Recorded.textOf(heard), answer)
    // Includes tokens that were read from a cache, and reasoning.
    assert.deepStrictEqual(usage, { inputTokens: 410, outputTokens: 28 })
    assert.match(sessionId!, /^ses_/u)
  })

  it("reports a model that refuses as the agent's failure", () => {
    const { code, detail } = Recorded.failureOf(play("refused"))
    assert.deepStrictEqual([code, detail], ["APIError", "model said no"])
  })

  it("reports a truncated answer as a failure, and keeps its text", () => {
    const { code, textSoFar } = Recorded.failureOf(play("cut"))
    assert.deepStrictEqual([code, textSoFar], ["length", "Done: no-nonce said the tool."])
  })

  it("treats an error as final, at any position and in any form", () => {
    const failed = { type: "error", sessionID: "s", error: { name: "Overflow", data: { message: "full" } } }
    for (const lines of [
      [failed, text("Lima"), finish()],
      [text("Lima"), finish(), failed]
    ])
      assert.strictEqual(Recorded.failureOf(read(...lines)).code, "Overflow")
    for (const error of [undefined, "no", { name: "" }])
      assert.strictEqual(
        Recorded.failureOf(read(text("a"), finish(), { type: "error", error })).code,
        "error"
      )
  })

  it.each([
    ["no output", []],
    ["no end of a step", [text("Lima")]],
    ["half an end of a step", [text("Lima"), JSON.stringify(finish()).slice(0, -2)]],
    ["an end with pending tool calls", [text("Lima"), finish({ reason: "tool-calls" })]],
    ["a last message without text", [text("Lima", "m0"), finish()]],
    ["an empty last message", [text(""), finish()]],
    ["a message in a list", [JSON.stringify([text("Lima")]), finish()]]
  ])("reports %s as unreadable, not as an answer", (_, lines) => {
    assert.strictEqual(Recorded.failureOf(read(...lines)).code, "unreadable")
  })

  it("excludes the output of a subagent's session", () => {
    const heard = read(
      text("Li"),
      text("Paris", "m", "t"),
      text("ma"),
      finish(),
      finish({ reason: "x" }, "t")
    )
    assert.strictEqual(Recorded.textOf(heard), "Lima")
    assert.strictEqual(Recorded.answerOf(heard).text, "Lima")
  })

  it("skips noise before, between and after its lines, and needs no last line break", () => {
    const [line, last] = [JSON.stringify(text("Lima")), JSON.stringify(finish())]
    for (const output of [
      `warming up\n${line}\n${last}\nbye\n`,
      `{"type":7}\n[1]\n"x"\n${line}\n{}\n${last}`
    ])
      assert.strictEqual(Recorded.answerOf(read(output)).text, "Lima")
  })

  it("omits a count of tokens that is zero or missing", () => {
    assert.notProperty(Recorded.answerOf(read(text("a"), finish())), "usage")
    const tokens = { input: 0, output: 0 }
    assert.notProperty(Recorded.answerOf(read(text("a"), finish({ tokens }))), "usage")
  })

  it("reads 100,000 lines", () => {
    const line = `${JSON.stringify(text("x"))}\n`
    assert.strictEqual(read(line.repeat(100_000), finish()).events.length, 100_000)
  })

  it("never throws on a field with an unexpected value", () => {
    let events = 0
    for (const recording of Recorded.recordings("opencode"))
      for (const mutant of Recorded.mutants(recording))
        events += Recorded.neverThrows(reader, [`${mutant}\n`]).events.length
    assert.isAbove(events, 0)
  })

  it.prop("reads any text without throwing", [Schema.String, Schema.String], ([one, other]) => {
    Recorded.neverThrows(reader, [one, other])
    if (one !== "") assert.strictEqual(Recorded.answerOf(read(text(one), finish())).text, one)
  })

  it.prop("reads the same however the output is split", [Recorded.Places], ([places]) => {
    for (const scene of ["task", "refused"])
      Recorded.sameHoweverCut(reader, Recorded.recorded("opencode", scene), places)
  })

  it.prop("reads its lines in any order without throwing", [Recorded.Places], ([places]) => {
    for (const recording of Recorded.recordings("opencode"))
      Recorded.neverThrows(reader, [Recorded.shuffled(recording, places)])
  })
})
