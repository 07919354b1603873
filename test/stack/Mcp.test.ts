/** `cogni-sandbox mcp` as an MCP client starts it: the official client, the real command, a real sandbox. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Schedule } from "effect"
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import { killed } from "../harness/CliWorld.ts"
import * as Engine from "../harness/Engine.ts"
import { freePort } from "../harness/FreePort.ts"
import * as Images from "../harness/Images.ts"

const { program } = CliProcess

/** Host directory that any user of a sandbox can write. */
const directory = Effect.acquireRelease(
  Effect.sync(() => {
    const path = realpathSync(mkdtempSync(join(tmpdir(), "cogni-test-mcp-")))
    chmodSync(path, 0o777)
    return path
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** Starts a server, and connects a client. The server must write only protocol messages to stdout. */
const connect = Effect.fnUntraced(function* (...argv: ReadonlyArray<string>) {
  const { stateDirectory } = yield* CliProcess.CliProcess
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: ["--disable-warning=ExperimentalWarning", program, "mcp", ...argv],
    env: { COGNI_STATE_DIR: stateDirectory, COGNI_RUNTIME_IMAGE: Images.runtime, ...Engine.variables },
    stderr: "pipe"
  })
  const said = { stderr: "", errors: [] as Array<string> }
  const closed = yield* Deferred.make<void>()
  transport.stderr?.on("data", (piece: Buffer) => (said.stderr += piece.toString("utf8")))
  const client = new Client({ name: "test", version: "1" })
  Object.assign(client, {
    onerror: (error: Error) => said.errors.push(String(error)),
    onclose: () => Deferred.doneUnsafe(closed, Effect.void)
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => client.connect(transport)),
    () => Effect.promise(() => client.close())
  )
  const call = (name: string, given: Record<string, unknown>) =>
    Effect.map(
      Effect.promise(() => client.callTool({ name, arguments: given })),
      ({ content, isError, structuredContent }) => ({
        failed: isError === true,
        text: (content as [{ readonly text: string }])[0].text,
        result: structuredContent as Record<string, unknown> | undefined
      })
    )
  return { call, client, closed: Deferred.await(closed), pid: transport.pid!, said }
})

/** Asserts that nothing is left of the sandbox after the command has ended. */
const nothingLeft = Effect.gen(function* () {
  const { leftovers } = yield* CliProcess.CliProcess
  const left = yield* leftovers.pipe(
    Effect.repeat({
      until: (found) => found.length === 0,
      times: 3000,
      schedule: Schedule.spaced("100 millis")
    })
  )
  assert.deepStrictEqual(left, [], "left behind")
})

layer(CliProcess.layer, { excludeTestServices: true })("cogni-sandbox mcp", (it) => {
  it.effect("gives the first call a sandbox that waited, with --pool", () =>
    Effect.gen(function* () {
      const { run } = yield* CliProcess.CliProcess
      const workspace = yield* directory
      const port = yield* freePort
      const { call, client, said } = yield* connect(
        "--workspace",
        workspace,
        "--pool",
        "1",
        "--metrics-port",
        String(port)
      )
      const metrics = Effect.promise(() =>
        fetch(`http://127.0.0.1:${port}/metrics`).then((answer) => answer.text())
      )
      yield* Await.until(
        "a sandbox waits",
        Effect.map(metrics, (text) => /^sandbox_pool_waiting 1$/mu.test(text))
      )
      const { result } = yield* call("shell__exec", { command: "echo x > made; pwd" })
      assert.containSubset(result, { exit_code: 0 }, said.stderr)
      assert.strictEqual(readFileSync(join(workspace, "made"), "utf8"), "x\n")
      yield* Effect.promise(() => client.close())
      yield* nothingLeft
      const runId = /^· (run-[0-9a-z]+)/mu.exec(said.stderr)?.[1] ?? assert.fail(said.stderr)
      const { stdout } = yield* run(["inspect", runId, "--output", "json"])
      assert.match(stdout.toString(), /"pool": ?"hit"/u)
    })
  )

  it.effect("gives a client tools that work in a sandbox on a directory of the host", () =>
    Effect.gen(function* () {
      const workspace = yield* directory
      mkdirSync(join(workspace, "src"))
      writeFileSync(join(workspace, "src", "a.txt"), "from the host\n")
      const { call, client, said } = yield* connect("--workspace", workspace)
      const { tools } = yield* Effect.promise(() => client.listTools())
      assert.includeMembers(
        tools.map(({ name }) => name),
        ["shell__exec", "process__start", "file__read"]
      )
      assert.strictEqual(said.stderr, "", "a sandbox was opened before the first call")
      const { result, text } = yield* call("shell__exec", {
        command: "cat a.txt; pwd; id -u; ls /sys/class/net; exit 3",
        cwd: join(workspace, "src")
      })
      assert.containSubset(
        result,
        { exit_code: 3, cwd: join(workspace, "src"), truncated: false },
        `${text} ${said.stderr}`
      )
      assert.match(String(result?.stdout), /^from the host\n\/workspace\/src\n\d+\nlo\n$/u)
      assert.containSubset(
        (yield* call("file__write", { path: "out/b.txt", content: "from inside\n" })).result,
        {
          bytes: 12
        }
      )
      assert.strictEqual(readFileSync(join(workspace, "out", "b.txt"), "utf8"), "from inside\n")
      const outside = yield* call("file__read", { path: "/etc/passwd" })
      assert.isTrue(outside.failed)
      assert.match(outside.text, /^validation: /u)
      assert.match(said.stderr, /^· run-[0-9a-z]+: the sandbox is open$/mu)
      assert.deepStrictEqual(said.errors, [])
      yield* Effect.promise(() => client.close())
      yield* nothingLeft
    })
  )

  it.effect("keeps processes between calls, and ends them with the client", () =>
    Effect.gen(function* () {
      const { call, client } = yield* connect()
      const started = yield* call("process__start", { command: "while :; do date; sleep 0.2; done" })
      const process_id = String(started.result?.process_id)
      assert.containSubset((yield* call("shell__exec", { command: "sleep 1" })).result, { exit_code: 0 })
      const logs = yield* call("process__logs", { process_id })
      assert.isAtLeast(String(logs.result?.text).split("\n").length, 3)
      yield* Effect.promise(() => client.close())
      yield* nothingLeft
    })
  )

  it.effect("ends a sandbox whose output has a canary", () =>
    Effect.gen(function* () {
      const { call, client, said } = yield* connect("--canaries", "stop")
      assert.isFalse((yield* call("shell__exec", { command: "ls ~/.aws" })).failed)
      for (const command of ["cat ~/.aws/credentials", "true"])
        assert.isTrue((yield* call("shell__exec", { command })).failed, command)
      yield* Effect.promise(() => client.close())
      assert.match(said.stderr, /the sandbox has ended, .*a planted secret/u)
      yield* nothingLeft
    })
  )

  it.effect.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("%s during a call ends the sandbox", (signal) =>
    Effect.gen(function* () {
      const { call, closed, pid, said } = yield* connect()
      yield* call("shell__exec", { command: "true" })
      const waiting = call("shell__exec", { command: "sleep 60" })
      yield* Effect.forkScoped(Effect.exit(waiting))
      yield* Effect.sleep("300 millis")
      process.kill(pid, signal)
      yield* closed
      assert.match(said.stderr, new RegExp(`ended by ${signal}`, "u"))
      yield* nothingLeft
    })
  )

  it.effect("removes the leftovers of a killed command while it waits for calls", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      yield* killed(cli)
      yield* connect()
      yield* nothingLeft
    })
  )

  it.effect("a client that closes stdin during a call ends the sandbox", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const message = (id: number, method: string, params: unknown) =>
        `${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`
      // Stdin is closed after these messages.
      const ended = yield* cli.run(["mcp"], {
        stdin:
          message(0, "initialize", {
            protocolVersion: "2025-06-18",
            capabilities: {},
            clientInfo: { name: "test", version: "1" }
          }) + message(1, "tools/call", { name: "shell__exec", arguments: { command: "sleep 60" } })
      })
      assert.strictEqual(ended.code, 0, ended.stderr)
      for (const line of ended.stdout.toString("utf8").trimEnd().split("\n").filter(Boolean)) {
        assert.strictEqual((JSON.parse(line) as { jsonrpc: string }).jsonrpc, "2.0")
      }
      yield* nothingLeft
    })
  )
})
