/** `cogni-sandbox chat` as a separate process: lines of JSON in and out, on a real engine and the real gateway. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import { freePort } from "../harness/FreePort.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

const key = "sk-planted-0123456789abcdef"

const configuration = `
sandbox:
  enabled: true
  memory_limit: 256m
  persistent_workspaces: true
agent_configs:
  coder:
    system_prompt: You code.
    tool_profile: coding
routing:
  default_agent: coder
`

/** Writes the notes of an agent on its workspace. */
const remember = 'mkdir -p .cogni; echo \'{"version":1,"summary":"lighthouse-mark"}\' >.cogni/index.json'

/** Model that runs its user's message as a command, and answers with the output. */
const shell: ScriptedModel.Script = ({ results, text }) =>
  results.length === 0
    ? { call: [{ name: "shell__exec", args: { command: text } }] }
    : { say: String(JSON.parse(results.at(-1)!).stdout).trim() }

const messages = (...all: ReadonlyArray<readonly [sender: string, id: string, text: string]>) =>
  all
    .map(
      ([senderId, messageId, text]) => `${JSON.stringify({ channel: "irc", senderId, messageId, text })}\n`
    )
    .join("")

const repliesOf = (stdout: Buffer) =>
  stdout
    .toString()
    .split("\n")
    .filter((line) => line !== "")
    .map((line): Record<string, unknown> => JSON.parse(line))
    .toSorted((one, other) => (String(one["messageId"]) < String(other["messageId"]) ? -1 : 1))

layer(CliProcess.layer, { excludeTestServices: true })("cogni-sandbox chat", (it) => {
  it.effect("gives a session with kept files a sandbox that waited, with --pool", () =>
    Effect.gen(function* () {
      const { run, start, stateDirectory } = yield* CliProcess.CliProcess
      const model = yield* ScriptedModel.acquire(shell)
      const file = join(stateDirectory, "pool.yaml")
      writeFileSync(file, configuration)
      const port = yield* freePort
      const { child, ended } = yield* start(
        ["chat", file, "--model", "m", "--quiet", "--pool", "1", "--metrics-port", String(port)],
        { keepsStdinOpen: true, env: { COGNI_LLM_URL: model.url, COGNI_LLM_KEY: key } }
      )
      const metrics = Effect.promise(() =>
        fetch(`http://127.0.0.1:${port}/metrics`).then(
          (answer) => answer.text(),
          () => ""
        )
      )
      yield* Await.until(
        "a sandbox waits",
        Effect.map(metrics, (text) => /^sandbox_pool_waiting 1$/mu.test(text))
      )
      child.stdin!.end(messages(["pooled", "1", "echo kept > note; cat note"]))
      const { stderr, stdout } = yield* ended
      const [one] = repliesOf(stdout)
      assert.strictEqual(one?.["text"], "kept", stderr)
      const inspected = yield* run(["inspect", String(one?.["runId"]), "--output", "json"])
      assert.match(inspected.stdout.toString(), /"pool": ?"hit"/u)
    })
  )

  it.effect(
    "answers each message in its session's sandbox, and keeps the session's files for the next process",
    () =>
      Effect.gen(function* () {
        const { run, stateDirectory } = yield* CliProcess.CliProcess
        const model = yield* ScriptedModel.acquire(shell)
        const file = join(stateDirectory, "cogni.yaml")
        writeFileSync(file, configuration)
        const chat = (stdin: string, flags: ReadonlyArray<string> = []) =>
          run(["chat", file, "--model", "m", ...flags], {
            stdin,
            env: { COGNI_LLM_URL: model.url, COGNI_LLM_KEY: key }
          })

        const first = yield* chat(
          `${messages(["a", "1", `${remember}; echo kept > note; env | grep -c -e BASE_URL -e SOCKET; ls -A /llm-sock`], ["b", "2", "cat note 2>&1"])}no message\n`
        )
        assert.strictEqual(first.code, 0, first.stderr)
        const [one, two, refused] = repliesOf(first.stdout)
        assert.deepStrictEqual(
          [one?.["ok"], one?.["agent"], one?.["key"], one?.["executor"], one?.["fallback"]],
          [true, "coder", "irc:a:coder", "sandbox", false]
        )
        assert.match(String(one?.["runId"]), /^run-/u)
        const named = `the sandbox ${String(one?.["runId"])} of the session "irc:a:coder"`
        assert.include(first.stderr, `· info: ${named} is open\n`)
        assert.include(first.stderr, `· info: ${named} is closed\n`)
        assert.strictEqual(one?.["text"], "0", "the sandbox has access to the model")
        assert.include(String(two?.["text"]), "note: No such file")
        assert.strictEqual(refused?.["ok"], false)
        assert.include(JSON.stringify(refused), "MessageInvalid")

        const second = yield* chat(messages(["a", "3", "cat note"], ["a", "4", "echo again"]), ["--quiet"])
        assert.strictEqual(second.stderr, "")
        assert.deepStrictEqual(
          repliesOf(second.stdout).map(({ text }) => text),
          ["kept", "again"],
          second.stderr
        )
        // Reading the notes starts no sandbox: they come after the first tool call of a process.
        const noted = (yield* model.received).map(({ body }) =>
          JSON.stringify(body).includes("lighthouse-mark")
        )
        assert.deepStrictEqual(noted.slice(-4), [false, false, true, true])

        assert.deepStrictEqual(yield* model.problems, [])
        for (const { headers } of yield* model.received) {
          assert.strictEqual(new Map(headers).get("authorization"), `Bearer ${key}`)
          assert.isDefined(new Map(headers).get("x-litellm-end-user-id"))
        }
        for (const { stderr, stdout } of [first, second])
          assert.notInclude(`${stdout.toString()}${stderr}`, key)
      })
  )

  it.effect("a session that only talks has no container, and its calls name the sender and the session", () =>
    Effect.gen(function* () {
      const { run, stateDirectory } = yield* CliProcess.CliProcess
      const model = yield* ScriptedModel.acquire(() => ({ say: "hello" }))
      const file = join(stateDirectory, "talk.yaml")
      writeFileSync(file, configuration)
      const { code, stderr, stdout } = yield* run(["chat", file, "--model", "m"], {
        stdin: messages(["a", "1", "hello"], ["b", "2", "hello"]),
        // Talk needs no engine either.
        env: { COGNI_LLM_URL: model.url, COGNI_LLM_KEY: key }
      })
      assert.strictEqual(code, 0, stderr)
      for (const reply of repliesOf(stdout))
        assert.deepStrictEqual([reply["ok"], reply["text"], reply["runId"]], [true, "hello", undefined])
      assert.notInclude(stderr, "is open")
      const metadata = (yield* model.received).map(({ headers }): Record<string, unknown> =>
        JSON.parse(new Map(headers).get("x-litellm-spend-logs-metadata") ?? "{}")
      )
      assert.deepStrictEqual(metadata.map((one) => [one["user_id"], one["session_id"]]).toSorted(), [
        ["irc:a", "irc:a:coder"],
        ["irc:b", "irc:b:coder"]
      ])
    })
  )

  it.effect("each agent uses the model of its tier", () =>
    Effect.gen(function* () {
      const { run, stateDirectory } = yield* CliProcess.CliProcess
      const model = yield* ScriptedModel.acquire(() => ({ say: "done" }))
      const file = join(stateDirectory, "tiers.yaml")
      writeFileSync(
        file,
        `${configuration.replace("tool_profile", "model_tier: complex\n    tool_profile")}models: { complex: large }\n`
      )
      const { code, stderr, stdout } = yield* run(["chat", file, "--model", "small"], {
        stdin: messages(["a", "1", "hello"]),
        env: { COGNI_LLM_URL: model.url, COGNI_LLM_KEY: key }
      })
      assert.deepStrictEqual([code, repliesOf(stdout)[0]?.["text"]], [0, "done"], `${stdout}${stderr}`)
      assert.deepStrictEqual(
        (yield* model.received).map(({ body }) => body["model"]),
        ["large"]
      )
    })
  )

  it.effect("sessions on the host use the model in the same way", () =>
    Effect.gen(function* () {
      const { run, stateDirectory } = yield* CliProcess.CliProcess
      const model = yield* ScriptedModel.acquire(shell)
      const file = join(stateDirectory, "host.yaml")
      const directory = join(stateDirectory, "work")
      mkdirSync(directory)
      writeFileSync(
        file,
        `${configuration.replace("enabled: true", "enabled: true\n  on_unavailable: host").replace("routing:", "  plain: { tool_profile: coding, sandbox: false }\nrouting:\n  channels: { host: plain }")}models: { default: large }\n`
      )
      const chat = (channel: string, env: Readonly<Record<string, string>> = {}) =>
        run(["chat", file, "--model", "small", "--host-directory", directory], {
          stdin: messages(["a", "1", "pwd"]).replace("irc", channel),
          env: { COGNI_LLM_URL: model.url, COGNI_LLM_KEY: key, ...env }
        })
      const known = new Set(readdirSync(join(stateDirectory, "host-sessions")))
      const chosen = yield* chat("host")
      const away = yield* chat("irc", { DOCKER_HOST: `unix://${stateDirectory}/none.sock` })
      for (const [{ stderr, stdout }, fallback] of [
        [chosen, false],
        [away, true]
      ] as const) {
        const [reply] = repliesOf(stdout)
        assert.deepStrictEqual(
          [reply?.["text"], reply?.["executor"], reply?.["fallback"]],
          [directory, "host", fallback],
          `${stdout}${stderr}`
        )
      }
      for (const { body, headers } of yield* model.received) {
        assert.strictEqual(body["model"], "large")
        assert.strictEqual(new Map(headers).get("authorization"), `Bearer ${key}`)
        assert.isDefined(new Map(headers).get("x-litellm-end-user-id"))
      }
      const audits = readdirSync(join(stateDirectory, "host-sessions")).filter((id) => !known.has(id))
      assert.strictEqual(audits.length, 2)
      for (const id of audits)
        assert.isTrue(existsSync(join(stateDirectory, "host-sessions", id, "audit", "audit.jsonl")))
    })
  )

  it.effect("refuses an invalid configuration with its line, and starts nothing", () =>
    Effect.gen(function* () {
      const { run, stateDirectory } = yield* CliProcess.CliProcess
      const file = join(stateDirectory, "wrong.yaml")
      writeFileSync(file, configuration.replace("default_agent: coder", "default_agent: nobody"))
      const { code, stderr } = yield* run(["chat", file, "--model", "m"], {
        env: { COGNI_LLM_URL: "http://127.0.0.1:9", COGNI_LLM_KEY: key }
      })
      assert.strictEqual(code, 65)
      assert.match(stderr, /wrong\.yaml:11:\d+ routing\.default_agent/u, stderr)
      assert.notInclude(stderr, "config check")
    })
  )

  it.effect("reports the first of many problems and how to list the others, and refuses a missing file", () =>
    Effect.gen(function* () {
      const { run, stateDirectory } = yield* CliProcess.CliProcess
      const file = join(stateDirectory, "many.yaml")
      writeFileSync(file, configuration.replaceAll("coder", "Coder"))
      const env = { COGNI_LLM_URL: "http://127.0.0.1:9", COGNI_LLM_KEY: key }
      const many = yield* run(["chat", file, "--model", "m"], { env })
      assert.strictEqual(many.code, 65)
      assert.include(many.stderr, "many.yaml:7:3 agent_configs.Coder")
      assert.notInclude(many.stderr, "default_agent")
      assert.include(many.stderr, `List all problems: cogni-sandbox config check ${file}\n`)
      const none = yield* run(["chat", join(stateDirectory, "none.yaml"), "--model", "m"], { env })
      assert.strictEqual(none.code, 66)
      assert.match(none.stderr, /there is no such file\. Write one, or name another\n$/u)
    })
  )

  it.effect("explains how to configure a missing model", () =>
    Effect.gen(function* () {
      const { run, stateDirectory } = yield* CliProcess.CliProcess
      const { code, stderr } = yield* run(["chat", join(stateDirectory, "none.yaml")])
      assert.strictEqual(code, 78)
      assert.include(stderr, "COGNI_LLM_URL")
      assert.include(stderr, "try it with --demo")
    })
  )

  it.effect("answers without a model, with --demo, whatever upstream is configured", () =>
    Effect.gen(function* () {
      const { run, stateDirectory } = yield* CliProcess.CliProcess
      const file = join(stateDirectory, "demo.yaml")
      writeFileSync(file, `${configuration}models: { complex: named-in-file, default: named-in-file }\n`)
      const { code, stderr, stdout } = yield* run(["chat", file, "--demo"], {
        stdin: messages(["ana", "1", "hello"]),
        env: { COGNI_LLM_URL: "http://127.0.0.1:9", COGNI_LLM_KEY: key }
      })
      assert.strictEqual(code, 0, stderr)
      const [reply] = repliesOf(stdout)
      assert.match(String(reply?.["text"]), /no model was asked/u, stderr)
      assert.isTrue(reply?.["demo"])
      const audits = readdirSync(join(stateDirectory, "host-sessions"), { encoding: "utf8", recursive: true })
        .filter((name) => name.endsWith("audit.jsonl"))
        .map((name) => readFileSync(join(stateDirectory, "host-sessions", name), "utf8"))
        .join("")
      assert.include(audits, '"model":"demo"')
      assert.notInclude(audits, "named-in-file")
    })
  )
})
