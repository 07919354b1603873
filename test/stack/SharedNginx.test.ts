/** `--proxy nginx-shared` on the command line, on a real engine: who is billed, what is refused, and that nothing stays. */
import { label, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { existsSync, readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import { freePort } from "../harness/FreePort.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

const key = "sk-planted-5d3b90-in-a-shared-nginx"

const environment = ({ url }: ScriptedModelApi.ScriptedModelApi) => ({
  COGNI_LLM_URL: url,
  COGNI_LLM_KEY: key,
  COGNI_LLM_MODEL: "m",
  SANDBOX_ENABLED: "true"
})

/** Returns the account that paid for each call, the run, and the credential. */
const billed = ({ received }: ScriptedModelApi.ScriptedModelApi) =>
  Effect.map(received, (calls) =>
    calls.map(({ headers }) => {
      const values = new Map(headers)
      const spend = JSON.parse(values.get("x-litellm-spend-logs-metadata") ?? "{}")
      return [values.get("x-litellm-customer-id"), spend.run_id, values.get("authorization")]
    })
  )

/** Checks that neither a run nor the nginx of a process is left, and that the process never said the key. */
const leftNothing = Effect.fnUntraced(function* (
  cli: CliProcess.CliProcess["Service"],
  { child, ended }: CliProcess.Started,
  code: number
) {
  const { stderr, stdout, ...end } = yield* ended
  assert.strictEqual(end.code, code, stderr)
  assert.notInclude(`${stdout.toString()}${stderr}`, key)
  const found = yield* DockerApi.DockerApi.use((api) => api.labelled(label.run))
  assert.deepStrictEqual(
    found.filter(({ labels }) => parseOwner(labels[label.owner] ?? "")?.processId === child.pid),
    []
  )
  const { proxies } = StateDirectory.paths(cli.stateDirectory)
  assert.deepStrictEqual(existsSync(proxies) ? readdirSync(proxies) : [], [])
  assert.deepStrictEqual(yield* cli.leftovers, [])
})

layer(CliProcess.layer, { excludeTestServices: true })("--proxy nginx-shared", (it) => {
  it.effect("serve bills each grant's account through one nginx, and refuses a budget", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const model = yield* ScriptedModel.acquire(() => ({ say: "Done." }))
      const port = yield* freePort
      const server = yield* cli.start(["serve", "--proxy", "nginx-shared", "--port", String(port)], {
        env: environment(model)
      })
      yield* server.said(/^listening on /mu)
      const chat = Effect.fnUntraced(function* (account: string, ...flags: ReadonlyArray<string>) {
        const grant = ["grants", "create", "--user", "ana", "--account", account, "--allow-sandbox", ...flags]
        const { stdout } = yield* cli.run(grant)
        const answer = yield* Effect.promise(() =>
          fetch(`http://127.0.0.1:${port}/api/v1/ai/chat`, {
            method: "POST",
            headers: { authorization: `Bearer ${stdout.toString().trim()}` },
            body: JSON.stringify({
              graphId: "sandbox:agent",
              messages: [{ role: "user", content: "Where is Lima?" }]
            })
          })
        )
        const text = yield* Effect.promise(() => answer.text())
        return { runId: answer.headers.get("x-cogni-run-id"), text }
      })
      const [one, other] = yield* Effect.all([chat("acme"), chat("bolt")], { concurrency: "unbounded" })
      for (const { text } of [one, other]) assert.match(text, /^event: assistant_final\ndata: .*Done\./mu)
      assert.sameDeepMembers(yield* billed(model), [
        ["acme", one.runId, `Bearer ${key}`],
        ["bolt", other.runId, `Bearer ${key}`]
      ])
      const refused = yield* chat("acme", "--max-calls", "1")
      assert.match(refused.text, /does not read bodies/u)
      assert.lengthOf(yield* model.received, 2)
      yield* server.kill("SIGTERM")
      yield* leftNothing(cli, server, 143)
    })
  )

  it.effect("chat bills the account of its process for the calls of its own loop, and refuses a budget", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const model = yield* ScriptedModel.acquire(({ results }) =>
        results.length === 0
          ? { call: [{ name: "shell__exec", args: { command: "echo $((6 * 7))" } }] }
          : { say: String(JSON.parse(results.at(-1)!).stdout).trim() }
      )
      const file = join(cli.stateDirectory, "shared.yaml")
      writeFileSync(
        file,
        "sandbox: { enabled: true }\nagent_configs: { coder: { tool_profile: coding } }\nrouting: { default_agent: coder }\n"
      )
      const start = (...flags: ReadonlyArray<string>) =>
        cli.start(["chat", file, "--proxy", "nginx-shared", ...flags], {
          stdin: '{"channel":"irc","senderId":"a","messageId":"1","text":"compute"}\n',
          env: environment(model)
        })
      const chat = yield* start()
      yield* leftNothing(cli, chat, 0)
      const reply = JSON.parse((yield* chat.ended).stdout.toString())
      assert.deepStrictEqual([reply.ok, reply.executor, reply.text], [true, "sandbox", "42"])
      const calls = yield* billed(model)
      assert.lengthOf(calls, 2)
      for (const [account, , bearer] of calls)
        assert.deepStrictEqual([account, bearer], ["acct-tests", `Bearer ${key}`])

      const refused = yield* start("--max-calls", "2")
      assert.match((yield* refused.ended).stderr, /does not read bodies/u)
      assert.lengthOf(yield* model.received, 2)
    })
  )
})
