/**
 * Agents that remember: a conversation of three turns with each real agent over HTTP, whose server is killed and
 * started anew between the turns.
 *
 * The model is a script. The request of the last turn comes from the agent's own session. The file of the
 * first turn is still there.
 */
import { assert, layer } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { readdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import type { AgentRow } from "../harness/agentTasks/AgentRow.ts"
import * as ClaudeCode from "../harness/agentTasks/ClaudeCode.ts"
import * as Codex from "../harness/agentTasks/Codex.ts"
import * as OpenClaw from "../harness/agentTasks/OpenClaw.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import { freePort } from "../harness/FreePort.ts"
import * as Images from "../harness/Images.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

const rows: ReadonlyArray<AgentRow> = [ClaudeCode.row, Codex.row, OpenClaw.row]

const modelOf = ({ agent }: AgentRow) => `scripted-${agent.id}`

const wordOf = ({ agent }: AgentRow) => `walrus-of-${agent.id}`

const files = 'echo harbour >note.txt; mkdir -p .cogni; echo \'{"entry":"lighthouse"}\' >.cogni/index.json'

/** Turn 1 writes files, turn 2 only talks, turn 3 reads the files. `results` are those of the whole session. */
const scripted = Effect.gen(function* () {
  const turn = { number: 1 }
  const model = yield* ScriptedModel.acquire(({ body, results }) => {
    const row = rows.find((one) => modelOf(one) === body["model"])
    if (row === undefined) return { say: "Who?" }
    switch (turn.number) {
      case 1:
        return results.length === 0 ? { call: [row.shell(files)] } : { say: "It is written." }
      case 2:
        return { say: "The sea is grey." }
      default:
        return results.length <= 1
          ? { call: [row.shell("cat note.txt .cogni/index.json")] }
          : { say: `Found: ${results.at(-1)}` }
    }
  })
  return { model, turn }
})

const env = (model: ScriptedModel.ScriptedModel) => ({
  SANDBOX_ENABLED: "true",
  COGNI_LLM_URL: model.url,
  COGNI_LLM_KEY: "sk-none",
  COGNI_GATEWAY_IMAGE: Images.gateway,
  ...Object.fromEntries(
    rows.map(({ agent }) => [Images.variableOf(agent.image), Images.ofAgent(agent.image)])
  )
})

/** The host, which can be killed and started anew. */
const host = Effect.gen(function* () {
  const cli = yield* CliProcess.CliProcess
  const { model, turn } = yield* scripted
  const port = yield* freePort
  const offers = rows.flatMap((row) => ["--offer-model", modelOf(row)])
  const grant = "grants create --user u --account a --allow-sandbox".split(" ")
  const { stdout } = yield* cli.run(grant)
  const headers = { authorization: `Bearer ${stdout.toString("utf8").trim()}` }
  const start = Effect.gen(function* () {
    const scope = yield* Scope.make()
    const process = yield* Scope.provide(
      cli.start(["serve", "--no-page", "--port", String(port), ...offers], { env: env(model) }),
      scope
    )
    yield* process.said(/^listening on /mu)
    // The scope kills the process, and waits for its end.
    return Scope.close(scope, Exit.void)
  })
  const ask = (path: string, init: RequestInit = {}) =>
    Effect.promise(async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/api/v1${path}`, { ...init, headers })
      return { status: answer.status, text: await answer.text() }
    })
  const say = (row: AgentRow, content: string) =>
    ask("/ai/chat", {
      method: "POST",
      body: JSON.stringify({
        graphId: `sandbox:${row.agent.id}`,
        model: modelOf(row),
        messages: [{ role: "user", content }],
        threadId: `../${row.agent.id}`,
        remember: true
      })
    })
  /** Starts a host, has every agent answer, and kills the host. */
  const round = Effect.fnUntraced(function* (number: number, content: (row: AgentRow) => string) {
    turn.number = number
    const kill = yield* start
    const answers = yield* Effect.forEach(
      rows,
      (row) => Effect.map(say(row, content(row)), ({ text }) => [row.agent.id, text] as const),
      { concurrency: "unbounded" }
    )
    yield* kill
    return new Map<string, string>(answers)
  })
  return { ask, cli, model, round, say, start }
})

/** The last request of an agent, as JSON. */
const lastOf = (model: ScriptedModel.ScriptedModel, row: AgentRow) =>
  Effect.map(model.received, (all) =>
    JSON.stringify(
      all.findLast(({ body, tools }) => body["model"] === modelOf(row) && tools.length > 0)?.body
    )
  )

layer(CliProcess.layer)("remembered threads", (it) => {
  it.effect("keep files, memory and the session of each agent through two deaths of the host", () =>
    Effect.gen(function* () {
      const { ask, cli, model, round, say, start } = yield* host
      const first = yield* round(1, (row) => `Remember the word ${wordOf(row)}, and write the note.`)
      const second = yield* round(2, () => "Which colour has the sea today?")
      const third = yield* round(3, () => "What is in the note, and which word was it?")
      assert.deepStrictEqual(yield* model.problems, [])
      for (const row of rows) {
        const { id } = row.agent
        assert.include(first.get(id), "It is written.", id)
        assert.include(second.get(id), "The sea is grey.", id)
        assert.include(third.get(id), "harbour", id)
        assert.include(third.get(id), "lighthouse", id)
        const request = yield* lastOf(model, row)
        for (const text of [wordOf(row), "It is written.", "Which colour has the sea", "The sea is grey."])
          assert.include(request, text, id)
        assert.notInclude(request, "Earlier messages:", `${id} continues its own session`)
      }
      const kill = yield* start
      const { threads } = JSON.parse((yield* ask("/threads")).text)
      assert.deepStrictEqual(
        threads.map((thread: any) => [thread.threadId, thread.turns, thread.hasFiles]).toSorted(),
        rows.map(({ agent }) => [`../${agent.id}`, 3, true]).toSorted()
      )
      const [lost, ...others] = threads
      const all = join(cli.stateDirectory, "threads")
      const directories = (key: string) => readdirSync(all).filter((name) => name.startsWith(key))
      for (const name of directories(lost.key)) rmSync(join(all, name), { recursive: true })
      const row = rows.find(({ agent }) => `../${agent.id}` === lost.threadId)!
      const refused = yield* say(row, "And now?")
      assert.deepStrictEqual(
        [refused.status, JSON.parse(refused.text).error.reason],
        [404, "ThreadFilesLost"]
      )
      assert.lengthOf(JSON.parse((yield* ask(`/threads/${lost.key}`)).text).turns, 3)
      for (const { key, workspaceBytes } of others) {
        assert.isAbove(workspaceBytes, 0)
        assert.lengthOf(directories(key), 1)
        assert.strictEqual((yield* ask(`/threads/${key}`, { method: "DELETE" })).status, 200)
        assert.lengthOf(directories(key), 0)
        assert.strictEqual((yield* ask(`/threads/${key}`)).status, 404)
      }
      yield* kill
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )
})
