/**
 * `cogni-sandbox acp` as an editor starts it: the protocol's own client, the real command, real agents in real
 * sandboxes, and a scripted model.
 */
import * as acp from "@agentclientprotocol/sdk"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import type * as Script from "../../packages/proxy/src/internal/scripted/Script.ts"
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { type ChildProcessWithoutNullStreams, execFile, execFileSync, spawn } from "node:child_process"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { Readable, Writable } from "node:stream"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import * as CliWorld from "../harness/CliWorld.ts"
import * as Engine from "../harness/Engine.ts"
import { freePort } from "../harness/FreePort.ts"
import { gitEnvironment } from "../harness/GitOrigin.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

const { program } = CliProcess

const guide = fileURLToPath(new URL("../../docs/guides/acp.md", import.meta.url))

/** A directory from which a program finds the SDK. Ignored by git. */
const sampleDirectory = Effect.acquireRelease(
  Effect.sync(() => {
    const parent = fileURLToPath(new URL("../../.cogni/", import.meta.url))
    mkdirSync(parent, { recursive: true })
    return mkdtempSync(join(parent, "acp-"))
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** A client that starts the command, passes its own streams to it, and can be killed. */
const relay = `
const { spawn } = require("node:child_process")
const child = spawn(process.argv[1], process.argv.slice(2), { stdio: ["pipe", "pipe", "inherit"] })
process.stdin.pipe(child.stdin)
child.stdout.pipe(process.stdout)
`

interface Options {
  readonly model: ScriptedModelApi.ScriptedModelApi
  /** Starts the command from a process between it and the test. */
  readonly isRelayed?: boolean
}

/** Starts the command, and connects a client that has no files and no terminals. */
const connect = Effect.fnUntraced(function* (
  { isRelayed = false, model }: Options,
  ...argv: ReadonlyArray<string>
) {
  const { stateDirectory } = yield* CliProcess.CliProcess
  const command = ["--disable-warning=ExperimentalWarning", program, "acp", ...argv]
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, isRelayed ? ["-e", relay, process.execPath, ...command] : command, {
        env: {
          COGNI_STATE_DIR: stateDirectory,
          COGNI_RUNTIME_IMAGE: Images.runtime,
          COGNI_CODEX_IMAGE: Images.ofAgent("codex"),
          COGNI_LLM_URL: model.url,
          COGNI_LLM_KEY: CliWorld.key,
          COGNI_LLM_MODEL: "scripted",
          COGNI_BILLING_ACCOUNT: "acct-tests",
          ...Engine.variables
        },
        stdio: ["pipe", "pipe", "pipe"]
      })
    ),
    (child) =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            if (child.exitCode !== null || child.signalCode !== null) return resolve()
            child.once("close", () => resolve())
            child.stdin.end()
          })
      )
  )
  const said = { stderr: "", stdout: "" }
  child.stderr.on("data", (piece: Buffer) => (said.stderr += piece.toString("utf8")))
  child.stdout.on("data", (piece: Buffer) => (said.stdout += piece.toString("utf8")))
  child.stdin.on("error", () => undefined)
  const closed = new Promise<number | null>((resolve) => void child.once("close", (code) => resolve(code)))
  const updates: Array<acp.SessionUpdate> = []
  const asked: Array<string> = []
  const connection = acp
    .client({ name: "editor" })
    .onNotification("session/update", ({ params }) => {
      updates.push(params.update)
    })
    .onRequest("*", ({ method }) => {
      asked.push(method)
      throw acp.RequestError.methodNotFound(method)
    })
    .connect(
      acp.ndJsonStream(
        Writable.toWeb(child.stdin) as WritableStream<Uint8Array>,
        Readable.toWeb(child.stdout) as unknown as ReadableStream<Uint8Array>
      )
    )
  const { agent } = connection
  const request = <M extends acp.AgentRequestMethod>(method: M, params: acp.AgentRequestParamsByMethod[M]) =>
    Effect.promise(() => agent.request(method, params))
  const initialized = yield* request("initialize", { protocolVersion: 1, clientCapabilities: {} })
  return {
    agent,
    asked,
    child,
    closed: Effect.promise(() => closed),
    initialized,
    said,
    updates,
    request,
    open: (cwd: string) =>
      Effect.map(request("session/new", { cwd, mcpServers: [] }), ({ sessionId }) => sessionId),
    prompt: (sessionId: string, text: string) =>
      request("session/prompt", { sessionId, prompt: [{ type: "text", text }] }),
    cancel: (sessionId: string) => Effect.promise(() => agent.notify("session/cancel", { sessionId })),
    /** Text of the agent's messages so far. */
    text: () =>
      updates
        .map((update) =>
          update.sessionUpdate === "agent_message_chunk" && update.content.type === "text"
            ? update.content.text
            : ""
        )
        .join("")
  }
})

/** Asserts that nothing is left of any run. */
const nothingLeft = Effect.gen(function* () {
  const { leftovers } = yield* CliProcess.CliProcess
  yield* Await.until(
    "runs leave nothing behind",
    Effect.map(leftovers, (found) => found.length === 0)
  )
})

/** A directory that the user of a sandbox may change. */
const project = Effect.tap(CliWorld.directory, (path) => Effect.sync(() => chmodSync(path, 0o777)))

const shell = (line: string): Script.Call => ({ name: "exec_command", args: { cmd: line } })

/** A model for agents that call tools: runs the user's last message as a command, then answers. */
const commands: ScriptedModel.Script = ({ results, text }) => {
  const line = /^run: (.+)$/mu.exec(text.slice(text.lastIndexOf("run: ")))?.[1]
  return results.length === 0 && line !== undefined
    ? { call: [shell(line)] }
    : { say: `It is done: ${results.at(-1)?.match(/made-\d+/u)?.[0] ?? "nothing"}.` }
}

layer(CliProcess.layer, { excludeTestServices: true })("cogni-sandbox acp", (it) => {
  it.effect("runs Codex sealed in the editor's directory, and shows what it does", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(commands)
      const cwd = yield* project
      const { asked, child, closed, initialized, open, prompt, said, text, updates } = yield* connect(
        { model },
        "--agent",
        "codex"
      )
      assert.strictEqual(initialized.agentInfo?.title, "Codex (sealed)")
      const line =
        "echo made-1 | tee made.txt; ls /sys/class/net >net.txt; (timeout 2 bash -c ': >/dev/tcp/1.1.1.1/80') 2>/dev/null && echo open >way.txt || echo sealed >way.txt"
      const answer = yield* prompt(yield* open(cwd), `run: ${line}`)
      assert.strictEqual(answer.stopReason, "end_turn", said.stderr)
      assert.strictEqual(readFileSync(join(cwd, "made.txt"), "utf8"), "made-1\n")
      assert.strictEqual(readFileSync(join(cwd, "net.txt"), "utf8"), "lo\n")
      assert.strictEqual(readFileSync(join(cwd, "way.txt"), "utf8"), "sealed\n")
      assert.strictEqual(text(), "It is done: made-1.")
      const tools = updates.filter(({ sessionUpdate }) => sessionUpdate.startsWith("tool_call"))
      assert.deepStrictEqual(
        tools.map((tool) => [tool.sessionUpdate, "status" in tool ? tool.status : undefined]),
        [
          ["tool_call", "in_progress"],
          ["tool_call_update", "completed"]
        ]
      )
      assert.include(JSON.stringify(tools[0]), `"kind":"execute"`)
      assert.include(JSON.stringify(tools[1]), "made-1")
      assert.deepStrictEqual(asked, [], "the agent asked the editor for something")
      for (const { headers } of yield* model.received)
        assert.strictEqual(new Map(headers).get("authorization"), `Bearer ${CliWorld.key}`)
      child.stdin.end()
      assert.strictEqual(yield* closed, 0, said.stderr)
      for (const line of said.stdout.trimEnd().split("\n"))
        assert.strictEqual((JSON.parse(line) as { jsonrpc?: string }).jsonrpc, "2.0", line)
      assert.notInclude(`${said.stdout}${said.stderr}`, CliWorld.key)
      yield* nothingLeft
    })
  )

  it.effect("cancels Codex in the middle of a command, and goes on in the same session", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(commands)
      const cwd = yield* project
      const { cancel, open, prompt, said } = yield* connect({ model }, "--agent", "codex", "--grace", "1s")
      const id = yield* open(cwd)
      const first = yield* Effect.forkChild(prompt(id, "run: echo up >started.txt; sleep 600"))
      yield* Await.until(
        "the agent has started its command",
        Effect.sync(() => existsSync(join(cwd, "started.txt")))
      )
      yield* cancel(id)
      assert.deepStrictEqual(yield* Fiber.join(first), { stopReason: "cancelled" }, said.stderr)
      // The answer comes after the container is gone.
      const { leftovers } = yield* CliProcess.CliProcess
      assert.deepStrictEqual(yield* leftovers, [])
      const again = yield* prompt(id, "run: echo made-2 | tee made.txt")
      assert.strictEqual(again.stopReason, "end_turn", said.stderr)
      assert.strictEqual(readFileSync(join(cwd, "made.txt"), "utf8"), "made-2\n")
      const bodies = (yield* model.received).map(({ body }) => JSON.stringify(body))
      assert.include(bodies.at(-1), "the user cancelled it", "the next prompt does not know the earlier turn")
    })
  )

  it.effect("gives the runtime image's agent the conversation, and records each prompt as a run", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModelApi.acquire({
        raw: true,
        script: ({ body, number }) => ({
          say: `answer ${number} to ${JSON.stringify((body["messages"] as ReadonlyArray<unknown>).length)}`
        })
      })
      const { run } = yield* CliProcess.CliProcess
      const { child, closed, open, prompt, said, text } = yield* connect({ model }, "--workspace", "fresh")
      const id = yield* open("/")
      assert.strictEqual((yield* prompt(id, "one")).stopReason, "end_turn", said.stderr)
      assert.strictEqual((yield* prompt(id, "two")).stopReason, "end_turn", said.stderr)
      assert.match(text(), /^answer \d to 1answer \d to 3$/u)
      const runs = [...said.stderr.matchAll(/^· (run-[0-9a-z]+): exit code 0 after .*, 1 model call$/gmu)]
      assert.lengthOf(runs, 2, said.stderr)
      const { stdout } = yield* run(["inspect", runs[0]![1]!, "-o", "json"])
      const record = JSON.stringify(JSON.parse(stdout.toString("utf8")))
      assert.include(record, `"sessionId":"${id}"`)
      assert.include(record, `"graphId":"sandbox:agent"`)
      assert.include(record, `"callsTotal":1`)
      child.stdin.end()
      assert.strictEqual(yield* closed, 0)
    })
  )

  it.effect("gives the second prompt in the editor's directory a sandbox that waited, with --pool", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(commands)
      const { run } = yield* CliProcess.CliProcess
      const cwd = yield* project
      const port = yield* freePort
      const { child, closed, open, prompt, said } = yield* connect(
        { model },
        "--agent",
        "codex",
        "--pool",
        "1",
        "--metrics-port",
        String(port)
      )
      const id = yield* open(cwd)
      yield* prompt(id, "run: echo made-1 >first.txt")
      // It learns from the first prompt what the second one needs.
      yield* Await.until(
        "a sandbox waits",
        Effect.promise(() => fetch(`http://127.0.0.1:${port}/metrics`).then((answer) => answer.text())).pipe(
          Effect.map((text) => /^sandbox_pool_waiting 1$/mu.test(text))
        )
      )
      yield* prompt(id, "run: cat first.txt >second.txt")
      assert.strictEqual(readFileSync(join(cwd, "second.txt"), "utf8"), "made-1\n", said.stderr)
      child.stdin.end()
      assert.strictEqual(yield* closed, 0, said.stderr)
      yield* nothingLeft
      const runs = [...said.stderr.matchAll(/^· (run-[0-9a-z]+): exit code 0/gmu)].map(([, runId]) => runId!)
      const uses = yield* Effect.forEach(runs, (runId) =>
        Effect.map(
          run(["inspect", runId, "-o", "json"]),
          ({ stdout }) => /"pool": ?"(\w+)"/u.exec(stdout.toString("utf8"))?.[1]
        )
      )
      assert.deepStrictEqual(uses, ["miss", "hit"])
    })
  )

  it.effect("keeps the files of a fresh directory for the session, and deletes them with it", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(commands)
      const { stateDirectory } = yield* CliProcess.CliProcess
      const { open, prompt, request, said, text } = yield* connect(
        { model },
        "--agent",
        "codex",
        "--workspace",
        "fresh"
      )
      const id = yield* open("/")
      yield* prompt(id, "run: echo made-7 >kept.txt")
      const other = yield* open("/")
      yield* prompt(id, "run: cat kept.txt")
      assert.include(text(), "made-7", said.stderr)
      const sessions = join(stateDirectory, "sessions")
      assert.lengthOf(readdirSync(sessions), 2)
      yield* request("session/close", { sessionId: id })
      yield* request("session/close", { sessionId: other })
      assert.deepStrictEqual(readdirSync(sessions), [])
    })
  )

  it.effect("pushes the commits of each prompt to a branch that continues the last one", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(commands)
      const cwd = yield* project
      const git = (...argv: ReadonlyArray<string>) =>
        Effect.sync(() =>
          execFileSync("git", ["-C", cwd, ...argv], { env: gitEnvironment, encoding: "utf8" })
        )
      yield* git("init", "-q", "-b", "main")
      yield* git("commit", "-q", "--allow-empty", "-m", "first")
      const { open, prompt, said, text } = yield* connect(
        { model },
        "--agent",
        "codex",
        "--workspace",
        "clone"
      )
      const id = yield* open(cwd)
      yield* prompt(id, "run: echo made-1 >one.txt")
      yield* prompt(id, "run: cat one.txt; echo made-2 >two.txt")
      const pushed = [...text().matchAll(/pushed (sandbox\/run-[0-9a-z]+) \(1 commit, 1 path\)/gu)].map(
        ([, branch]) => branch!
      )
      assert.lengthOf(pushed, 2, `${text()}\n${said.stderr}`)
      assert.strictEqual(yield* git("ls-tree", "--name-only", pushed[1]!), "one.txt\ntwo.txt\n")
      assert.deepStrictEqual(readdirSync(cwd), [".git"], "the editor's directory has changed")
    })
  )

  it.effect("refuses directories that no run may have, and MCP servers", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(commands)
      const { stateDirectory } = yield* CliProcess.CliProcess
      const { agent } = yield* connect({ model })
      const cwd = yield* project
      const refused = (params: acp.NewSessionRequest) =>
        Effect.flip(
          Effect.tryPromise({
            try: () => agent.request("session/new", params),
            catch: (error) => error as acp.RequestError
          })
        )
      for (const forbidden of ["/proc", "/run", stateDirectory, join(cwd, "absent")]) {
        const { code, data } = yield* refused({ cwd: forbidden, mcpServers: [] })
        assert.deepStrictEqual(
          [code, (data as { reason: string }).reason],
          [-32602, "DirectoryRefused"],
          forbidden
        )
      }
      const { message } = yield* refused({
        cwd,
        mcpServers: [{ name: "files", command: "/bin/mcp", args: [], env: [] }]
      })
      assert.include(message, "--ignore-mcp-servers")
    })
  )

  it.effect(
    "ends a prompt with a stop reason when its budget is spent, and with an error at its time limit",
    () =>
      Effect.gen(function* () {
        const model = yield* ScriptedModel.acquire(commands)
        const cwd = yield* project
        const spent = yield* connect({ model }, "--agent", "codex", "--max-calls", "1", "--stop-when-spent")
        const answer = yield* spent.prompt(yield* spent.open(cwd), "run: echo made-1")
        assert.strictEqual(answer.stopReason, "max_turn_requests", spent.said.stderr)
        assert.include(spent.text(), "> cogni-sandbox: ")
        const slow = yield* connect({ model }, "--agent", "codex", "--timeout", "5s", "--grace", "1s")
        const id = yield* slow.open(cwd)
        const error = yield* Effect.flip(
          Effect.tryPromise({
            try: () =>
              slow.agent.request("session/prompt", {
                sessionId: id,
                prompt: [{ type: "text", text: "run: sleep 600" }]
              }),
            catch: (thrown) => thrown as acp.RequestError
          })
        )
        assert.strictEqual(error.code, -32603)
        assert.match(error.message, /--timeout/u)
        assert.containSubset(error.data, { reason: "RunFailed", error: "timeout", cause: "TimedOut" })
      })
  )

  it.effect("answers the program of its guide, executed as written", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModelApi.acquire({ raw: true, script: () => ({ say: "A sealed place." }) })
      const { stateDirectory } = yield* CliProcess.CliProcess
      const home = yield* sampleDirectory
      const [, sample] = /^```ts\n([\s\S]*?)^```$/mu.exec(readFileSync(guide, "utf8")) ?? []
      writeFileSync(join(home, "client.ts"), sample!)
      const bin = join(home, "bin")
      mkdirSync(bin)
      writeFileSync(
        join(bin, "cogni-sandbox"),
        `#!/bin/sh\nexec "${process.execPath}" --disable-warning=ExperimentalWarning "${program}" "$@"\n`,
        { mode: 0o755 }
      )
      const { stderr, stdout } = yield* Effect.promise(() =>
        promisify(execFile)(
          process.execPath,
          ["--disable-warning=ExperimentalWarning", join(home, "client.ts")],
          {
            cwd: home,
            timeout: Pace.hangMillis / 2,
            env: {
              PATH: `${bin}:/usr/local/bin:/usr/bin:/bin`,
              COGNI_STATE_DIR: stateDirectory,
              COGNI_RUNTIME_IMAGE: Images.runtime,
              COGNI_LLM_URL: model.url,
              COGNI_LLM_KEY: CliWorld.key,
              COGNI_LLM_MODEL: "scripted",
              COGNI_BILLING_ACCOUNT: "acct-tests"
            }
          }
        )
      )
      assert.strictEqual(stdout, "A sealed place.\nend_turn\n", stderr)
      yield* nothingLeft
    })
  )

  it.effect.each([
    ["closes stdin", (child) => child.stdin.end(), 0],
    ["closes stdout", (child) => child.stdout.destroy(), 141],
    ["sends SIGTERM", (child) => child.kill("SIGTERM"), 143],
    ["is killed", (child) => child.kill("SIGKILL"), null]
  ] satisfies ReadonlyArray<
    readonly [string, (child: ChildProcessWithoutNullStreams) => unknown, number | null]
  >)("leaves nothing when its client %s during a prompt", ([how, act, code]) =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(commands)
      const cwd = yield* project
      const { agent, child, closed, open, said } = yield* connect(
        { model, isRelayed: how === "is killed" },
        "--agent",
        "codex",
        "--grace",
        "1s"
      )
      const id = yield* open(cwd)
      void agent
        .request("session/prompt", {
          sessionId: id,
          prompt: [
            { type: "text", text: "run: echo up >started.txt; until test -e go.txt; do sleep 0.1; done" }
          ]
        })
        .catch(() => undefined)
      yield* Await.until(
        "the agent has started its command",
        Effect.sync(() => existsSync(join(cwd, "started.txt")))
      )
      const { leftovers } = yield* CliProcess.CliProcess
      assert.isAbove((yield* leftovers).length, 0)
      act(child)
      // The next report of the agent finds that its reader has gone.
      if (how === "closes stdout") writeFileSync(join(cwd, "go.txt"), "")
      assert.strictEqual(yield* closed, code, said.stderr)
      yield* nothingLeft
    })
  )
})
