/** Errors of `chat` that need no engine: one line and one exit code each. */
import { assert, describe, it } from "@effect/vitest"
import * as Configuration from "@cogni/sandbox-sessions/config/Configuration"
import { poolOf } from "../src/ChatCommand.ts"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, FileSystem, Layer } from "effect"

const chat = (file: string, model: Readonly<Record<string, string>>, flags: ReadonlyArray<string> = []) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv: ["chat", file, ...flags],
      environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all", ...model }
    }).pipe(Effect.provide(memory.layer))
    const { stderr, stdout } = memory.said
    return { code, stderr, stdout }
  })

const model = {
  COGNI_LLM_URL: "http://127.0.0.1:1",
  COGNI_LLM_KEY: "k",
  COGNI_LLM_MODEL: "m",
  COGNI_BILLING_ACCOUNT: "acct"
}

describe("chat", () => {
  it.effect("refuses to start without a configured upstream", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* chat("/proc/nowhere/at/all.yaml", {})
      assert.strictEqual(code, 78)
      assert.include(stderr, "no model is configured")
      assert.include(stderr, "--demo")
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("needs no upstream, no account and no model with --demo", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const file = `${directory}/cogni.yaml`
      yield* fs.writeFileString(
        file,
        "agent_configs: { a: { tool_profile: minimal } }\nrouting: { default_agent: a }\n"
      )
      // The directory is checked after the model and the account.
      const { code, stderr } = yield* chat(file, {}, ["--demo", "--host-directory", `${directory}/none`])
      assert.strictEqual(code, 66, stderr)
      assert.include(stderr, "--host-directory")
    }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))
  )

  it.effect("refuses a budget out of bounds, by its flags", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* chat("/proc/nowhere/at/all.yaml", model, ["--max-calls", "0"])
      assert.strictEqual(code, 64)
      assert.match(stderr, /the budget is out of bounds: --max-calls: .* See cogni-sandbox chat --help/u)
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("refuses a limit of cost with --demo", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* chat("/proc/nowhere/at/all.yaml", {}, ["--demo", "--max-cost", "1"])
      assert.strictEqual(code, 64)
      assert.include(stderr, "--max-cost has no effect with --demo")
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("refuses a rule for tools that is no pattern", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* chat("/proc/nowhere/at/all.yaml", model, [
        "--ask-tool",
        "github.comment"
      ])
      assert.strictEqual(code, 65)
      assert.include(stderr, "--ask-tool")
      assert.include(stderr, "Write github__comment")
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("reports an unreadable configuration like config check", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* chat("/proc/nowhere/at/all.yaml", model), {
        code: 66,
        stdout: "",
        stderr:
          "cogni-sandbox: the configuration /proc/nowhere/at/all.yaml cannot be read: there is no such file. Write one, or name another\n"
      })
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("reports the first problem of a configuration, and the command that lists all", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const file = `${yield* fs.makeTempDirectoryScoped()}/cogni.yaml`
      yield* fs.writeFileString(file, "x: 1\n")
      const { code, stderr } = yield* chat(file, model)
      assert.strictEqual(code, 65)
      assert.strictEqual(stderr.split("\n").length, 2)
      assert.include(stderr, ":1:1 x: Unknown key")
      assert.include(stderr, `List all problems: cogni-sandbox config check ${file}`)
    }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))
  )

  const { COGNI_LLM_MODEL: _, ...unnamed } = model

  it.effect("reports a missing file before a missing model", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* chat("/proc/nowhere/at/all.yaml", unnamed)
      assert.strictEqual(code, 66)
      assert.include(stderr, "the configuration /proc/nowhere/at/all.yaml cannot be read")
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("requires a model only if a tier of the file has none", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const file = `${directory}/cogni.yaml`
      const agent = "agent_configs: { a: { tool_profile: minimal } }\nrouting: { default_agent: a }\n"
      yield* fs.writeFileString(file, agent)
      const refused = yield* chat(file, unnamed, ["--host-directory", `${directory}/none`])
      assert.strictEqual(refused.code, 78, refused.stderr)
      assert.include(refused.stderr, "no model is named for the agent a, whose tier is default")
      yield* fs.writeFileString(file, `${agent}models: { default: m }\n`)
      // The directory is checked after the model, which is now valid.
      const passed = yield* chat(file, unnamed, ["--host-directory", `${directory}/none`])
      assert.strictEqual(passed.code, 66, passed.stderr)
      assert.include(passed.stderr, "--host-directory")
    }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))
  )

  it.effect.each([
    ["", false],
    ["sandbox: { enabled: false }", false],
    ["sandbox: { enabled: true }", true]
  ] as const)("keeps sandboxes of --pool only for agents that have one (%s)", ([sandbox, isKept]) =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const file = `${directory}/cogni.yaml`
      const [one, other] = [
        "a: { tool_profile: minimal }",
        "b: { tool_profile: minimal, sandbox: false }"
      ] as const
      const started = Effect.fnUntraced(function* (agent: string, flags: ReadonlyArray<string>) {
        const routing = `routing: { default_agent: ${agent.slice(0, 1)} }`
        yield* fs.writeFileString(file, `agent_configs: { ${agent} }\n${routing}\n${sandbox}\n`)
        // The directory is checked after the pool.
        const { code, stderr } = yield* chat(file, model, ["--host-directory", `${directory}/none`, ...flags])
        assert.strictEqual(code, 66, stderr)
        return stderr
      })
      const warning = `no sandbox of --pool waits, because no agent of ${file} has a sandbox`
      assert.include(yield* started(other, ["--pool", "2"]), warning)
      assert.notInclude(yield* started(one, []), "--pool")
      assert.strictEqual((yield* started(one, ["--pool", "2"])).includes(warning), !isKept)
      const text = yield* fs.readFileString(file)
      const configuration = yield* Configuration.parse(text, {
        file,
        toolNames: [],
        runtimeImage: "memory/agent"
      })
      const { keep } = yield* poolOf(configuration, { canaries: "off", pool: 2, poolMemoryBytes: undefined })
      assert.strictEqual(keep !== undefined, isKept)
    }).pipe(Effect.provide(Layer.fresh(Layer.merge(NodeServices.layer, Output.makeMemory().layer))))
  )

  it.effect("refuses an agent with host tools behind a proxy that cannot pass on their calls", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const file = `${directory}/cogni.yaml`
      const started = Effect.fnUntraced(function* (tool: string, proxy: string) {
        const agent = `agent_configs: { a: { tool_profile: minimal, tool_overrides: { allow: [${tool}] } } }`
        yield* fs.writeFileString(file, `${agent}\nrouting: { default_agent: a }\n`)
        // The directory is checked after the tools.
        return yield* chat(file, model, ["--host-directory", `${directory}/none`, "--proxy", proxy])
      })
      const refused = yield* started("github.*", "nginx-shared")
      assert.strictEqual(refused.code, 65, refused.stderr)
      assert.include(
        refused.stderr,
        "the proxy nginx-shared cannot pass on the calls of host tools, which the agent a may make. Use --proxy gateway"
      )
      assert.strictEqual((yield* started("shell.exec", "nginx-shared")).code, 66)
      assert.strictEqual((yield* started("github.*", "gateway")).code, 66)
    }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))
  )

  it.effect("refuses a host directory that does not exist or is not a directory", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      yield* fs.writeFileString(`${directory}/file`, "")
      const file = `${directory}/cogni.yaml`
      yield* fs.writeFileString(
        file,
        "agent_configs: { a: { tool_profile: minimal } }\nrouting: { default_agent: a }\n"
      )
      for (const [path, problem] of [
        [`${directory}/none`, "does not exist"],
        [`${directory}/file`, "is not a directory"]
      ] as const) {
        const { code, stderr } = yield* chat(file, model, ["--host-directory", path])
        assert.deepStrictEqual(
          [code, stderr],
          [
            66,
            `cogni-sandbox: --host-directory "${path}" ${problem}. Create it, or name a directory that exists\n`
          ]
        )
      }
    }).pipe(Effect.provide(Layer.fresh(NodeServices.layer)))
  )
})
