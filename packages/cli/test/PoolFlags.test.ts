/** The flags of a pool, before anything is started: their help, and what does not go with them. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as Cli from "../src/Cli.ts"
import * as Composition from "../src/Composition.ts"
import * as Output from "../src/Output.ts"
import * as PoolFlags from "../src/PoolFlags.ts"

const cli = (...argv: ReadonlyArray<string>) => cliIn("/proc/nowhere/at/all", ...argv)

const cliIn = (stateDirectory: string, ...argv: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const before = (yield* TestConsole.logLines).length
    const environment = { COGNI_STATE_DIR: stateDirectory, DOCKER_HOST: "unix:///proc/nowhere/docker.sock" }
    const code = yield* Cli.main({ argv, environment }).pipe(
      Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
    )
    const logged = (yield* TestConsole.logLines).slice(before).join("\n")
    return { code, help: logged, stderr: memory.said.stderr }
  })

const commands = ["serve --port 0", "chat cogni.yaml", "mcp", "acp"]

describe("--pool-memory", () => {
  it.effect.each(commands)("%s refuses it without --pool, and an invalid size", (line) =>
    Effect.gen(function* () {
      const command = line.split(" ")
      for (const more of [[], ["--pool", "0"]]) {
        const alone = yield* cli(...command, "--pool-memory", "2g", ...more)
        assert.strictEqual(alone.code, 64, alone.stderr)
        assert.include(alone.stderr, "--pool-memory has no effect without --pool")
      }
      const small = yield* cli(...command, "--pool", "1", "--pool-memory", "8m")
      assert.strictEqual(small.code, 64, small.stderr)
      assert.include(small.stderr, "--pool-memory holds no sandbox: one needs at least 16m")
      const wrong = yield* cli(...command, "--pool", "1", "--pool-memory", "2")
      assert.strictEqual(wrong.code, 64, wrong.stderr)
      assert.include(wrong.stderr + wrong.help, "such as 512m or 1g")
    })
  )

  it.effect.each(["serve", "chat", "mcp", "acp"])("%s names what a waiting sandbox takes", (command) =>
    Effect.gen(function* () {
      const { help } = yield* cli(command, "--help")
      assert.match(help, /--pool COUNT .*each takes 16m.*\(default 0: none\).*root/u)
      assert.match(help, /--pool-memory SIZE .*\(default 1g, or 16m for each of --pool if that is more\)/u)
      const learns = command === "serve" || command === "acp"
      assert.strictEqual(help.includes("OpenClaw as 391m"), learns)
      assert.match(
        help,
        learns ? /--pool COUNT .*at most/u : /--pool COUNT .*exactly this many from the start on/u
      )
    })
  )
})

describe("a command for one run", () => {
  it.effect.each(["run --pool 2 hello", "task --pool-memory 2g hello"])(
    "says which commands have a pool: %s",
    (line) =>
      Effect.gen(function* () {
        const { code, stderr } = yield* cli(...line.split(" "))
        assert.strictEqual(code, 64)
        assert.include(
          stderr,
          "A pool serves one process with many runs: cogni-sandbox serve, chat, acp or mcp"
        )
        assert.notInclude(stderr, "Did you mean")
      })
  )
})

const proxy = { name: "gateway", inspectsBodies: true, servesHost: true, tools: [], listensInMount: true }

describe("--pool", () => {
  it.effect.each([
    [{}, true],
    [{ memory: true, workspace: { type: "directory", path: "/srv" } }, true],
    [{ canaries: "warn" }, false],
    [{ network: { mode: "internal", networkName: "tools" } }, false],
    [{ packages: ["cargo:serde"] }, false],
    [{ packages: ["npm:left-pad"] }, true]
  ] as ReadonlyArray<[Partial<SandboxSpec.OpenSpecInput>, boolean]>)(
    "keeps sandboxes only for those that can use one (%o)",
    ([more, isKept]) =>
      Effect.gen(function* () {
        const kept = yield* Composition.keptOf({ image: "memory/agent", ...more }, proxy)
        assert.strictEqual(kept !== undefined, isKept)
        if (more.workspace?.type === "directory") assert.strictEqual(kept?.directory, more.workspace.path)
        if (more.packages === undefined) return
        const elsewhere = { ...proxy, listensInMount: false }
        assert.isUndefined(yield* Composition.keptOf({ image: "memory/agent", ...more }, elsewhere))
      })
  )

  it.effect("refuses sandboxes that no spec can have, such as of the image that the environment names", () =>
    Effect.gen(function* () {
      const { message } = yield* Effect.flip(Composition.keptOf({ image: "My Image" }, proxy))
      assert.include(message, "Expected the name of an image")
    })
  )

  it.effect.each([
    [["--pool=-1"], '--pool: "-1". Expected: a whole number of sandboxes, 0 or more, such as 8. See'],
    [["--pool", "-1"], '--pool: "-1". Expected: a whole number of sandboxes, 0 or more, such as 8. See'],
    [
      ["--pool", "3", "--pool-memory", "16m"],
      ": --pool 3, --pool-memory 16 MiB: 3 sandboxes are more than its limits allow (1). Raise --pool-memory, or lower --pool"
    ]
  ] as const)("refuses limits that no pool can have, before anything is started: %s", ([flags, problem]) =>
    Effect.gen(function* () {
      const directory = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      const { code, stderr } = yield* cliIn(directory, "mcp", ...flags)
      assert.strictEqual(code, 64, stderr)
      assert.include(stderr, problem)
      assert.notMatch(stderr, /sandboxesMax|memoryBytesMax/u)
    })
  )

  it.effect("with canaries warns once that no run uses it", () =>
    Effect.gen(function* () {
      const memory = Output.makeMemory()
      const checked = (input: Parameters<typeof PoolFlags.checked>[0]) =>
        Effect.provide(PoolFlags.checked(input), memory.layer)
      yield* checked({ canaries: "off", pool: 2 })
      yield* checked({ canaries: "stop" })
      assert.strictEqual(memory.said.stderr, "")
      yield* checked({ canaries: "warn", pool: 2, poolMemoryBytes: 2 ** 30 })
      assert.match(
        memory.said.stderr,
        /^· warning: no run uses a sandbox of --pool with --canaries[^\n]*\n$/u
      )
    })
  )
})
