/**
 * Each agent on a real task: it reads a file, changes it, runs commands, and answers with a word from their output.
 *
 * The agent is real. It runs as a graph in a sealed container behind the real gateway. The model is a script, so the
 * agent's actions are known in advance.
 */
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as UsageFact from "../../packages/graph-provider/src/events/UsageFact.ts"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import type { AgentRow } from "../harness/agentTasks/AgentRow.ts"
import * as AgentWorld from "../harness/agentTasks/AgentWorld.ts"
import * as ClaudeCode from "../harness/agentTasks/ClaudeCode.ts"
import * as Codex from "../harness/agentTasks/Codex.ts"
import * as OpenClaw from "../harness/agentTasks/OpenClaw.ts"
import * as OpenCode from "../harness/agentTasks/OpenCode.ts"
import * as Pi from "../harness/agentTasks/Pi.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import * as Engine from "../harness/Engine.ts"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"
import type { Figures } from "../../packages/proxy/src/internal/scripted/Script.ts"

/** Agents under test. **Add a new agent here.** */
const rows: ReadonlyArray<AgentRow> = [
  ClaudeCode.row,
  Codex.row,
  Codex.rowOfCodeMode,
  OpenClaw.row,
  OpenCode.row,
  Pi.row
]

const directory = "/workspace"

/** Question that is longer than the maximum length of an argument. */
const question = `${"The quick brown fox jumps over the lazy dog. ".repeat(3200)}\n\nSay goodbye in greeting.txt.`

/** Shell line that prints a random word, and attempts egress with tools that every image has. */
const line = [
  "wc -c <greeting.txt >size.txt",
  "id -u >uid.txt",
  "(timeout 2 bash -c ': >/dev/tcp/1.1.1.1/80' || getent hosts example.com) >/dev/null 2>&1 && echo open >way.txt || echo sealed >way.txt",
  "cat /proc/sys/kernel/random/uuid | tee word.txt"
].join("; ")

const made = ["greeting.txt", "size.txt", "uid.txt", "way.txt", "word.txt"]

const uuid = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/gu

const scriptOf =
  (row: AgentRow): ScriptedModel.Script =>
  ({ index, results }) => {
    switch (index) {
      case 0:
        return { call: [row.read(directory, "greeting.txt")] }
      case 1:
        return { call: [row.replace(directory, "greeting.txt", "hello", "goodbye")] }
      case 2:
        return { call: [row.shell(line)] }
      default:
        return { say: `The word is ${results.at(-1)?.match(uuid)?.at(-1) ?? "unknown"}.` }
    }
  }

/**
 * Agents that run from the command line too. The command has the spec and the reader of the graphs, which units check
 * for every agent. OpenClaw and opencode are left out, because each of their starts takes a minute on a busy machine.
 */
const fromCommandLine: ReadonlyArray<AgentRow> = [ClaudeCode.row, Codex.row, Pi.row]

const messages = [
  { role: "user", content: "Who are you?" },
  { role: "assistant", content: "Nobody yet." },
  { role: "user", content: question }
] as const

const modelOf = (row: AgentRow): string => row.model ?? "scripted"

const titleOf = ({ agent, model }: AgentRow): string =>
  model === undefined ? agent.name : `${agent.name} (${model})`

const sumOf = (figures: ReadonlyArray<Partial<Figures>>) => ({
  inputTokens: figures.reduce((sum, { inputTokens = 0 }) => sum + inputTokens, 0),
  outputTokens: figures.reduce((sum, { outputTokens = 0 }) => sum + outputTokens, 0)
})

const judgeWorkspace = (row: AgentRow, path: string): string => {
  const file = (name: string) => readFileSync(join(path, name), "utf8").trim()
  assert.deepStrictEqual(readdirSync(path).toSorted(), [".cogni", ...made, ...(row.files ?? [])].toSorted())
  assert.strictEqual(file("greeting.txt"), "goodbye\nworld")
  assert.strictEqual(file("size.txt"), "14")
  assert.strictEqual(file("uid.txt"), String(statSync(path).uid))
  assert.strictEqual(file("way.txt"), "sealed")
  return file("word.txt")
}

/** Checks the three tool calls, each of which ends before the next. */
const judgeTools = (row: AgentRow, events: ReadonlyArray<AiEvent>, word: string) => {
  const calls = events.flatMap((event) => (event.type === "tool_call_start" ? [event] : []))
  assert.deepStrictEqual(
    calls.map(({ toolName }) => toolName),
    [...row.toolNames]
  )
  const order = events.flatMap((event) => {
    if (event.type === "tool_call_start") return [`start ${event.toolCallId}`]
    if (event.type !== "tool_call_result") return []
    return [`${event.isError === true ? "error" : "result"} ${event.toolCallId}`]
  })
  assert.deepStrictEqual(
    order,
    calls.flatMap(({ toolCallId }) => [`start ${toolCallId}`, `result ${toolCallId}`])
  )
  const results = events.flatMap((event) => (event.type === "tool_call_result" ? [event.result] : []))
  assert.include(JSON.stringify(results[0]), "hello")
  assert.include(JSON.stringify(results[2]), word)
}

/** Checks the order of events, and that the text is the answer, in pieces if the agent streams. */
const judgeEvents = (row: AgentRow, { events }: AgentWorld.Worked, word: string) => {
  GraphHarness.isWhole(events)
  const { streaming, toolEvents } = row.agent.capabilities
  if (toolEvents) judgeTools(row, events, word)
  const said = events.flatMap((event) => (event.type === "text_delta" ? [event.delta] : []))
  assert.strictEqual(said.join(""), `The word is ${word}.`)
  if (streaming === "delta") assert.isAbove(said.length, 1)
}

/** Checks the calls to the model: the host's key and identity, no key of the sandbox, and the complete question. */
const judgeCalls = Effect.fnUntraced(function* (row: AgentRow, { final, upstream }: AgentWorld.Worked) {
  assert.deepStrictEqual(yield* upstream.problems, [])
  const received = yield* upstream.received
  const turns = received.filter(({ tools }) => tools.length > 0)
  assert.lengthOf(turns, 4)
  for (const { body, headers, tools } of received) {
    const given = new Map(headers)
    assert.strictEqual(given.get("authorization"), `Bearer ${AgentWorld.key}`)
    assert.isUndefined(given.get("x-api-key"))
    assert.strictEqual(given.get("x-litellm-customer-id"), AgentWorld.account)
    assert.include(given.get("x-litellm-spend-logs-metadata"), final.runId)
    assert.notInclude(JSON.stringify(headers), "none", "the placeholder key of the sandbox")
    assert.strictEqual(body["model"], modelOf(row))
    for (const name of row.toolsNeverOffered ?? []) assert.notInclude(tools, name)
  }
  const first = JSON.stringify(turns[0]?.body)
  assert.include(first, "Nobody yet.")
  assert.include(first, question.slice(-2000, -100))
})

/** Checks that each call has one usage fact, with the figures that the model reported. */
const judgeUsage = Effect.fnUntraced(function* (
  row: AgentRow,
  { events, read, upstream }: AgentWorld.Worked
) {
  const received = yield* upstream.received
  const figures = received.flatMap(({ usage }) => usage ?? [])
  const facts = events.flatMap((event) => (event.type === "usage_report" ? [event.fact] : []))
  assert.strictEqual(new Set(facts.map(UsageFact.key)).size, received.length)
  assert.deepStrictEqual(sumOf(facts), sumOf(figures))
  for (const { billingAccountId, usageRaw } of facts) {
    assert.strictEqual(billingAccountId, AgentWorld.account)
    assert.include(usageRaw, { status: 200, outcome: "completed" })
  }
  assert.isTrue(read !== undefined && Result.isSuccess(read))
  if (read !== undefined && Result.isSuccess(read)) {
    assert.deepStrictEqual(read.success.usage, (row.usage ?? sumOf)(figures))
    assert.notStrictEqual(read.success.sessionId, "")
  }
})

layer(Layer.merge(Engine.api(), RunHarness.Directory.layer), {
  excludeTestServices: true
})("agents", (it) => {
  for (const row of rows) {
    it.effect(
      `${titleOf(row)} completes and reports a task of several turns with access to its model only`,
      () =>
        Effect.gen(function* () {
          const model = modelOf(row)
          const path = yield* AgentWorld.workspace({ "greeting.txt": "hello\nworld\n" })
          const worked = yield* AgentWorld.work(row.agent, scriptOf(row), path, { messages, model })
          assert.isTrue(worked.final.ok, JSON.stringify([worked.final, worked.upstream.problems]))
          const word = judgeWorkspace(row, path)
          assert.strictEqual(worked.final.content, `The word is ${word}.`)
          judgeEvents(row, worked, word)
          yield* judgeCalls(row, worked)
          yield* judgeUsage(row, worked)
        }).pipe(Effect.scoped)
    )
  }

  for (const row of rows.filter(({ refusal }) => refusal !== undefined)) {
    it.effect(`${titleOf(row)} gives no answer if its model refuses, whatever it prints`, () =>
      Effect.gen(function* () {
        const path = yield* AgentWorld.workspace()
        const { events, final, read } = yield* AgentWorld.work(
          row.agent,
          () => ({ refuse: "You may not." }),
          path,
          { messages: [{ role: "user", content: "Hi." }], model: modelOf(row) }
        )
        assert.isFalse(final.ok)
        assert.isTrue(read !== undefined && Result.isFailure(read) && read.failure.code === row.refusal)
        assert.isTrue(events.every(({ type }) => type !== "text_delta" && type !== "assistant_final"))
        assert.include(
          events.map(({ type }) => type),
          "error"
        )
      }).pipe(Effect.scoped)
    )
  }
})

layer(CliProcess.layer, { excludeTestServices: true })("agents, from the command line", (it) => {
  for (const { agent, model, shell } of fromCommandLine) {
    it.effect(`run --agent ${agent.id} prints its answer and nothing else`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const { url } = yield* ScriptedModel.acquire(({ index }) =>
          index === 0 ? { call: [shell("echo hello")] } : { say: "All is well." }
        )
        const path = yield* AgentWorld.workspace()
        const ended = yield* cli.run(["run", "--agent", agent.id, "--workspace", path, "Say hello."], {
          env: {
            COGNI_LLM_URL: url,
            COGNI_LLM_KEY: AgentWorld.key,
            COGNI_LLM_MODEL: model ?? "scripted",
            [Images.variableOf(agent.image)]: Images.ofAgent(agent.image)
          }
        })
        assert.strictEqual(ended.code, 0, ended.stderr)
        assert.strictEqual(ended.stdout.toString(), "All is well.\n")
      }).pipe(Effect.scoped)
    )
  }
})
