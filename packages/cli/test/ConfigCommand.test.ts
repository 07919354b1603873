/**
 * Configurations on the command line: their problems, their schema, and which agent answers a sender. No test reaches
 * an engine.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import * as Configuration from "@cogni/sandbox-sessions/config/Configuration"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, FileSystem, Layer } from "effect"

const good = `sandbox: {enabled: true, memory_limit: 1g}
agent_configs: {assistant: {}, coder: {sandbox: false}}
routing: {default_agent: assistant, channels: {discord: coder}, senders: {"slack:U0*": coder, "telegram:12345": coder}}
`

const config = (text: string, ...argv: ReadonlyArray<string>) => configIn({}, text, ...argv)

const configIn = (
  environment: Readonly<Record<string, string>>,
  text: string,
  ...argv: ReadonlyArray<string>
) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const directory = yield* fs.makeTempDirectoryScoped()
    const file = `${directory}/cogni.yaml`
    yield* fs.writeFileString(file, text)
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv: ["config", ...argv.map((word) => (word === "FILE" ? file : word))],
      environment
    }).pipe(Effect.provide(memory.layer))
    const said = (what: string) => what.replaceAll(directory, "")
    return { code, stdout: said(memory.said.stdout), stderr: said(memory.said.stderr) }
  }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))

describe("config check", () => {
  it.effect("summarizes a configuration, and warns about agents outside of a sandbox", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* config(good, "check", "FILE"), {
        code: 0,
        stdout:
          "/cogni.yaml: 2 agents, 4 routes, sandbox of cogni-sandbox/runtime:latest (1 GiB, 1 CPU, no network, 300 s, at most 20 sessions)\n",
        stderr:
          "· warning: /cogni.yaml:2:40 agent_configs.coder.sandbox: this agent runs on the host, if there is a host executor\n"
      })
      const off = yield* config("agent_configs: {a: {}}\nrouting: {default_agent: a}\n", "check", "FILE")
      assert.strictEqual(off.stdout, "/cogni.yaml: 1 agent, 1 route, sandbox off\n")
      assert.include(off.stderr, "all run on the host")
    })
  )

  it.effect("shows the runtime image of the command if the file names no image", () =>
    Effect.gen(function* () {
      const environment = { COGNI_RUNTIME_IMAGE: "registry.example/runtime:1" }
      const followed = yield* configIn(environment, good, "check", "FILE")
      assert.include(followed.stdout, "sandbox of registry.example/runtime:1 (")
      const own = good.replace("enabled: true", "enabled: true, image: own")
      assert.include((yield* configIn(environment, own, "check", "FILE")).stdout, "sandbox of own (")
    })
  )

  it.effect("knows the tools of this host, and those of HTTP only with rules", () =>
    Effect.gen(function* () {
      const naming = (tool: string) =>
        good.replace("{assistant: {}", `{assistant: {tool_overrides: {allow: [${tool}]}}`)
      assert.strictEqual((yield* config(naming("github.comment"), "check", "FILE")).code, 0)
      const unknown = yield* config(naming("http.get"), "check", "FILE")
      assert.strictEqual(unknown.code, 65)
      assert.include(unknown.stdout, "Expected an existing tool")
    })
  )

  it.effect("accepts the tools of MCP servers, and starts none of them", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const servers = `${directory}/servers.json`
      // A server that cannot be started.
      const server = { name: "acme", command: "/nonexistent/server", tools: { "*": "read_only" } }
      yield* fs.writeFileString(servers, JSON.stringify([server]))
      const named = (tool: string) =>
        configIn(
          { COGNI_MCP_SERVERS_FILE: servers },
          good.replace("{assistant: {}", `{assistant: {tool_overrides: {allow: [${tool}]}}`),
          "check",
          "FILE"
        )
      for (const tool of ["acme.echo", '"acme.*"']) {
        const { code, stderr } = yield* named(tool)
        assert.strictEqual(code, 0, stderr)
      }
      assert.strictEqual((yield* named("other.echo")).code, 65)
    }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))
  )

  it.effect("lists every problem with its position, like a compiler, and their number", () =>
    Effect.gen(function* () {
      const bad = good
        .replace("enabled: true", "enabled: yes")
        .replace("default_agent: assistant", "default_agent: X")
      assert.deepStrictEqual(yield* config(bad, "check", "FILE"), {
        code: 65,
        stdout:
          "/cogni.yaml:1:11 sandbox.enabled: Expected true or false (yes, no, on and off are strings in YAML 1.2)\n" +
          "/cogni.yaml:3:11 routing.default_agent: Expected the name of an agent: 1 to 64 lower-case letters, digits, `_` and `-`, beginning with a letter\n",
        stderr: "cogni-sandbox: the configuration /cogni.yaml is invalid: 2 problems\n"
      })
    })
  )

  it.effect("reports the same as one JSON object", () =>
    Effect.gen(function* () {
      const { code, stdout } = yield* config("a: 1\n", "check", "FILE", "--output", "json")
      assert.strictEqual(code, 65)
      const said = JSON.parse(stdout) as Record<string, unknown>
      assert.containSubset(said, {
        ok: false,
        exitCode: 65,
        error: { code: "input", reason: "ConfigurationInvalid", isRetryable: false },
        problemsOmitted: 0
      })
      assert.containSubset((said["problems"] as ReadonlyArray<unknown>)[0], { line: 1, column: 1, key: "a" })
      const fine = yield* config(good, "check", "FILE", "-o", "json")
      assert.strictEqual(fine.code, 0)
      assert.containSubset(JSON.parse(fine.stdout), {
        ok: true,
        agents: ["assistant", "coder"],
        routes: 4,
        sandbox: { enabled: true, memoryBytesMax: 2 ** 30 }
      })
    })
  )

  it.effect("reports a missing file, and one that cannot be read", () =>
    Effect.gen(function* () {
      const none = yield* config(good, "check", "FILE.none")
      assert.strictEqual(none.code, 66)
      assert.include(none.stderr, "cannot be read: there is no such file")
      assert.strictEqual((yield* config(good, "check", ".")).code, 65)
      assert.strictEqual((yield* config(good, "check")).code, 64)
    })
  )

  it.effect("makes control characters of the file visible", () =>
    Effect.gen(function* () {
      const { code, stdout } = yield* config(
        '"\\e[2J\\u202e\\n": 1\nagent_configs: {"\\e[2J": {}}\n',
        "check",
        "FILE"
      )
      assert.strictEqual(code, 65)
      // eslint-disable-next-line no-control-regex
      assert.notMatch(stdout.replaceAll("\n", ""), /[\0-\x1f\x7f-\x9f\u202e]/u)
      for (const line of stdout.trim().split("\n")) assert.match(line, /^\/cogni\.yaml:\d+:\d+ /u)
    })
  )
})

describe("config resolve", () => {
  const resolve = (channel: string, sender: string, ...more: ReadonlyArray<string>) =>
    config(good, "resolve", "FILE", "--channel", channel, `--sender=${sender}`, ...more)

  it.effect("shows the agent that answers, its rule and its executor", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* resolve("slack", "U042"), {
        code: 0,
        stdout:
          'agent     coder\nrule      routing.senders, the pattern "slack:U0*"\nexecutor  host\nsession   slack:U042:coder\n',
        stderr: ""
      })
      assert.include((yield* resolve("telegram", "12345")).stdout, 'the sender "telegram:12345"')
      assert.include((yield* resolve("discord", "x")).stdout, 'routing.channels, the channel "discord"')
      assert.include(
        (yield* resolve("telegram", "-100")).stdout,
        "routing.default_agent\nexecutor  sandbox\n"
      )
      assert.deepStrictEqual(JSON.parse((yield* resolve("slack", "U0", "-o", "json")).stdout), {
        ok: true,
        agent: "coder",
        rule: { _tag: "SenderPattern", channel: "slack", pattern: "U0*" },
        executor: "host",
        key: "slack:U0:coder"
      })
    })
  )

  it.effect("refuses an invalid sender, and an invalid configuration", () =>
    Effect.gen(function* () {
      const nobody = yield* resolve("x".repeat(65), "")
      assert.strictEqual(nobody.code, 65)
      assert.include(nobody.stderr, "channel: Expected 1 to 64 characters")
      assert.include(nobody.stderr, "senderId: Expected 1 to 254 characters")
      const none = yield* config("a: 1\n", "resolve", "FILE", "--channel", "x", "--sender", "y")
      assert.strictEqual(none.code, 65)
      assert.include(none.stdout, "/cogni.yaml:1:1 a: Unknown key")
      assert.strictEqual((yield* config(good, "resolve", "FILE", "--channel", "x")).code, 64)
    })
  )
})

it.effect("config schema prints the schema of a configuration", () =>
  Effect.gen(function* () {
    const { code, stdout } = yield* config(good, "schema")
    assert.strictEqual(code, 0)
    assert.deepStrictEqual(JSON.parse(stdout), Configuration.jsonSchema())
  })
)
