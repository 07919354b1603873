/** OpenClaw: its command line, and the strict parsing of its envelope. Recorded from 2026.9.6. */
import { promptPath } from "@cogni/sandbox-graph-provider/agents/Agent"
import { type AgentTask } from "@cogni/sandbox-graph-provider/agents/AgentFields"
import * as OpenClaw from "@cogni/sandbox-graph-provider/agents/OpenClaw"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { readFileSync } from "node:fs"
import * as Recorded from "./Recorded.ts"

const { openClaw } = OpenClaw
const { reader } = openClaw
const recorded = (scene: string) =>
  readFileSync(new URL(`recorded/openclaw.${scene}.txt`, import.meta.url), "utf8")
const hear = (output: string) => Recorded.hear(reader, [output])

const envelope = (text: string, over: object = {}) => ({
  payloads: [{ text, mediaUrl: null }],
  meta: { stopReason: "stop", aborted: false, ...over }
})
const printed = (value: unknown) => `${JSON.stringify(value, undefined, 2)}\n`

const taskOf = (over: Partial<AgentTask> = {}): AgentTask => ({
  messages: [{ role: "user", content: "a secret prompt" }],
  model: "vendor/m:free",
  runId: "run-1",
  workingDirectory: "/workspace/repo",
  runtimeSecondsMax: 600,
  ...over
})

const configurationOf = (over: Partial<AgentTask> = {}, agent = openClaw) =>
  JSON.parse(agent.inputs(taskOf(over)).find(({ name }) => name === "openclaw.json")!.content)
const promptOf = (over: Partial<AgentTask> = {}, agent = openClaw) =>
  agent.inputs(taskOf(over)).find(({ name }) => name === "prompt.md")!.content
const optionOf = (name: string, over: Partial<AgentTask> = {}) => {
  const argv = openClaw.argv(taskOf(over))
  return argv[argv.indexOf(name) + 1]
}

describe("OpenClaw", () => {
  it("is started with options only, in a session named after the run, without its gateway", () => {
    const argv = openClaw.argv(taskOf())
    assert.deepStrictEqual(argv.slice(0, 3), ["openclaw", "agent", "--local"])
    assert.notInclude(argv.join(" "), "secret")
    assert.strictEqual(optionOf("--session-id"), "run-1")
    assert.strictEqual(optionOf("--message-file"), promptPath)
    assert.strictEqual(optionOf("--agent"), "main")
    assert.strictEqual(promptOf(), "a secret prompt")
    assert.strictEqual(openClaw.env(taskOf())["OPENCLAW_CONFIG_PATH"], "/cogni/openclaw.json")
    assert.strictEqual(openClaw.limits.memoryBytesMax, 2 * 1024 ** 3)
  })

  it("knows one model at one address, and disables the features that the host provides", () => {
    const { agents, cron, gateway, models, plugins, session, tools, update } = configurationOf()
    assert.strictEqual(models.mode, "replace")
    assert.deepStrictEqual(Object.keys(models.providers), ["cogni"])
    const { baseUrl, models: known } = models.providers.cogni
    assert.strictEqual(baseUrl, "http://localhost:8080/v1")
    assert.deepStrictEqual(known, [{ id: "vendor/m:free", name: "vendor/m:free" }])
    assert.deepStrictEqual(agents.defaults.model, { primary: "cogni/vendor/m:free", fallbacks: [] })
    assert.deepStrictEqual(agents.defaults.sandbox, { mode: "off" })
    assert.strictEqual(agents.defaults.skipBootstrap, true)
    assert.deepStrictEqual(
      [cron.enabled, gateway.controlUi.enabled, plugins.enabled, tools.elevated.enabled, update.checkOnStart],
      [false, false, false, false, false]
    )
    assert.deepStrictEqual(tools.allow, OpenClaw.tools)
    // Each takes a part of its start.
    assert.deepStrictEqual(session, { maintenance: { mode: "warn" } })
    assert.strictEqual(openClaw.env(taskOf())["OPENCLAW_NO_RESPAWN"], "1")
  })

  it("applies a personality: its name, its instructions, its denied tools", () => {
    const personality = "reviewer"
    assert.strictEqual(optionOf("--agent", { personality }), "reviewer")
    assert.match(promptOf({ personality }), /<system>\nYou review code\.[^]*a secret prompt$/u)
    const { entries, ownership } = configurationOf({ personality }).agents
    assert.strictEqual(ownership, "explicit")
    assert.deepStrictEqual(Object.keys(entries), ["main", "coder", "researcher", "reviewer"])
    assert.deepStrictEqual(entries.reviewer, {
      workspace: "/workspace/repo",
      identity: { name: "Reviewer" },
      tools: { deny: ["write", "edit", "apply_patch"] }
    })
  })

  it("is run by the build of its image as by a run: with the same arguments, variables and configuration", () => {
    const warm = {
      messages: [{ role: "user", content: "Warm up." }],
      model: "m",
      runId: "warm",
      workingDirectory: "/tmp/warm",
      runtimeSecondsMax: 70
    } satisfies AgentTask
    assert.deepStrictEqual(
      JSON.parse(readFileSync(new URL("../../../images/openclaw/warm.json", import.meta.url), "utf8")),
      { argv: openClaw.argv(warm), variables: openClaw.env(warm), configuration: configurationOf(warm) },
      "change images/openclaw/warm.json too, so that the image loads what a run needs"
    )
  })

  it("accepts custom personalities, and leaves unknown ones for OpenClaw to refuse", () => {
    const mine = OpenClaw.make({ poet: { instructions: "Rhyme." } })
    assert.include(promptOf({ personality: "poet" }, mine), "Rhyme.")
    assert.deepStrictEqual(Object.keys(configurationOf({}, mine).agents.entries), ["main", "poet"])
    for (const personality of ["pirate", "constructor"]) {
      assert.strictEqual(optionOf("--agent", { personality }), personality)
      assert.strictEqual(promptOf({ personality }), "a secret prompt")
      assert.notInclude(Object.keys(configurationOf({ personality }).agents.entries), personality)
    }
    const { code, detail } = Recorded.failureOf(hear(recorded("unknown-personality")))
    assert.strictEqual(code, "cli_error")
    assert.include(detail, `Unknown agent id "nobody"`)
  })

  it("times out before the run: a tenth earlier, but 10 to 60 seconds", () => {
    const seconds = [1, 5, 11, 60, 120, 600, 3600, 86_400]
    assert.deepStrictEqual(seconds.map(OpenClaw.timeoutSeconds), [1, 1, 1, 50, 108, 540, 3540, 86_340])
    assert.strictEqual(optionOf("--timeout"), "540")
    const { subagents, timeoutSeconds } = configurationOf().agents.defaults
    assert.deepStrictEqual([timeoutSeconds, subagents.runTimeoutSeconds], [540, 486])
  })

  it.prop("never exceeds the time of the run, and is at least 1 second", [Schema.Int], ([any]) => {
    const runtimeSecondsMax = 1 + (Math.abs(any) % 86_400)
    const seconds = OpenClaw.timeoutSeconds(runtimeSecondsMax)
    assert.isAtLeast(seconds, 1)
    assert.isAtMost(seconds, runtimeSecondsMax)
  })

  it("reads a task: the answer, the run's session, its count of tokens", () => {
    assert.deepStrictEqual(hear(recorded("task")).events, [])
    assert.deepStrictEqual(Recorded.answerOf(hear(recorded("task"))), {
      text: "Done: nonce-4711 said the tool.",
      sessionId: "run-123456789012",
      usage: { inputTokens: 410, outputTokens: 28 }
    })
  })

  it("reports a turn that timed out as a failure, although OpenClaw exits with 0", () => {
    const { code, detail, textSoFar } = Recorded.failureOf(hear(recorded("timeout")))
    assert.deepStrictEqual([code, detail, textSoFar], ["toolUse", "⚠️ Exec failed", ""])
  })

  it("reports a truncated answer as a failure, and keeps its text", () => {
    const { code, textSoFar } = Recorded.failureOf(hear(recorded("cut")))
    assert.strictEqual(code, "length")
    assert.match(textSoFar, /^Done: no-nonce/u)
  })

  it("reports a refusal as the agent's failure, whatever surrounds it", () => {
    const refused = recorded("refused")
    const answer = printed(envelope("Lima"))
    for (const output of [refused, refused + answer, answer + refused])
      assert.strictEqual(Recorded.failureOf(hear(output)).code, "cli_error")
  })

  it.each([
    ["an error", { error: { kind: "context_overflow", message: "too long" } }, "context_overflow"],
    ["an error without a kind", { error: {} }, "error"],
    ["an abort", { aborted: true }, "aborted"],
    ["an unfinished tool call", { stopReason: "toolUse" }, "toolUse"]
  ])("reports %s in an envelope as a failure", (_, over, code) => {
    const { code: found, textSoFar } = Recorded.failureOf(hear(printed(envelope("Li", over))))
    assert.deepStrictEqual([found, textSoFar], [code, "Li"])
  })

  it("reports an error payload as a failure, and excludes it from the text", () => {
    const payloads = [{ text: "Lima" }, { text: "it broke", isError: true }]
    const { code, detail, textSoFar } = Recorded.failureOf(hear(printed({ ...envelope(""), payloads })))
    assert.deepStrictEqual([code, detail, textSoFar], ["error", "it broke", "Lima"])
  })

  it.each([
    ["no output", ""],
    ["blanks", " \n\n"],
    ["no text", printed(envelope(""))],
    ["no payload", printed({ ...envelope(""), payloads: [] })],
    ["half an envelope", printed(envelope("Lima")).slice(0, -4)],
    ["an envelope in a list", printed([envelope("Lima")])],
    ["another object", printed({ text: "Lima" })],
    ["two envelopes", printed(envelope("Lima")).repeat(2)]
  ])("reports %s as unreadable, not as an answer", (_, output) => {
    assert.strictEqual(Recorded.failureOf(hear(output)).code, "unreadable")
  })

  it("skips logs before and after the envelope, also if they contain objects", () => {
    const log = '[agent] run ended\n{"level":"info"}\n{ not json\n'
    for (const body of [printed(envelope("Li\nma {\n}")), `${JSON.stringify(envelope("Li\nma {\n}"))}\n`])
      assert.strictEqual(Recorded.answerOf(hear(log + body + log)).text, "Li\nma {\n}")
    assert.strictEqual(Recorded.answerOf(hear(`{\n${printed(envelope("Lima"))}`)).text, "Lima")
  })

  it("omits a count of tokens that is zero or invalid", () => {
    for (const usage of [{ input: 0, output: 0 }, { input: "many" }, null])
      assert.notProperty(Recorded.answerOf(hear(printed(envelope("a", { agentMeta: { usage } })))), "usage")
  })

  it("reads 100,000 lines", () => {
    for (const line of ["{\n", "}\n", '{"a":1}\n', "  x\n"]) {
      Recorded.neverThrows(reader, [line.repeat(100_000)])
      assert.strictEqual(Recorded.answerOf(hear(printed(envelope("x")) + line.repeat(100_000))).text, "x")
    }
  })

  it("never throws on a field with an unexpected value", () => {
    let ends = 0
    for (const scene of ["task", "timeout", "refused"])
      for (const mutant of Recorded.mutants(JSON.stringify(JSON.parse(recorded(scene)))))
        ends += Recorded.neverThrows(reader, [`${mutant}\n`]).end === undefined ? 0 : 1
    assert.isAbove(ends, 100)
  })

  it.prop("reads any text without throwing", [Schema.String, Schema.String], ([one, other]) => {
    Recorded.neverThrows(reader, [one, other])
    if (one !== "") assert.strictEqual(Recorded.answerOf(hear(printed(envelope(one)))).text, one)
  })

  it.prop("reads the same however the output is split", [Recorded.Places], ([places]) => {
    for (const scene of ["task", "refused"]) Recorded.sameHoweverCut(reader, recorded(scene), places)
  })

  it.prop("reads its lines in any order without throwing", [Recorded.Places], ([places]) => {
    Recorded.neverThrows(reader, [Recorded.shuffled(recorded("task"), places)])
  })
})
