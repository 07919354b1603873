/** Parsing of the command line, and one line for each error. No test reaches an engine. */
import { defaultLimits } from "@cogni/sandbox-loop/LoopLimits"
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "../src/Cli.ts"
import * as Invocation from "../src/Invocation.ts"
import * as Output from "../src/Output.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"

const cli = (argv: ReadonlyArray<string>, environment: Record<string, string> = {}) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const code = yield* Cli.main({
      argv,
      environment: { COGNI_STATE_DIR: "/proc/nowhere/at/all", ...environment }
    }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
    const printed = (yield* TestConsole.logLines).join("\n")
    return { code, stdout: memory.said.stdout + printed, stderr: memory.said.stderr }
  })

describe("invocation", () => {
  it("is split at the first --, and the rest is unchanged", () => {
    const asked = Invocation.make(["run", "-q", "--", "sh", "-c", "x", "--", "--output", "json"])
    assert.deepStrictEqual(asked.words, ["run", "-q"])
    assert.deepStrictEqual(asked.operands, ["sh", "-c", "x", "--", "--output", "json"])
    assert.strictEqual(asked.format, "text")
  })

  it.each([[["--output", "json"]], [["--output=json"]], [["-o", "json"]], [["-o=json"]], [["-qo", "json"]]])(
    "has its output format before it is parsed: %j",
    (words) => {
      assert.strictEqual(Invocation.make(["ps", ...words]).format, "json")
    }
  )

  it("detects the log level debug", () => {
    assert.isTrue(Invocation.make(["run", "--log-level", "debug"]).debug)
    assert.isFalse(Invocation.make(["run", "--log-level", "info"]).debug)
    assert.isFalse(Invocation.make(["run"]).debug)
  })
})

const mistakes: ReadonlyArray<readonly [words: string, code: number, says: string]> = [
  ["rnu", 64, "run"],
  ["run --nonsense x", 64, "--nonsense"],
  ["run", 64, "there is nothing to run"],
  ["run --", 64, "no command follows --"],
  ["run x -- ls", 64, "there is a prompt and a command"],
  ["run x y", 64, "y"],
  ["run x --prompt-file y", 64, "two prompts"],
  ["ps -- ls", 64, "only run takes a command"],
  ["run --timeout 2x x", 64, "--timeout"],
  ["run --timeout 0s x", 64, "--timeout"],
  ["run --timeout=-5s x", 64, "--timeout"],
  ["run --memory 0m x", 64, "--memory"],
  ["run --memory -1g x", 64, "--memory"],
  ["run --memory 1 x", 64, "512m or 1g"],
  ["run --cpus two x", 64, '--cpus: "two". Expected: a number of CPUs from 0.01 to 1024, such as 0.5. See'],
  ["run --cpus 0x2 x", 64, '--cpus: "0x2". Expected: a number of CPUs'],
  [
    "run --processes 2.5 x",
    64,
    '--processes: "2.5". Expected: a whole number of processes and threads from 4 to 32768, such as 256. See'
  ],
  ["serve --pool 8x", 64, '--pool: "8x". Expected: a whole number of sandboxes, 0 or more, such as 8. See'],
  [
    "run --max-cost $1 x",
    64,
    '--max-cost: "$1". Expected: an amount in US dollars above 0, such as 0.50. See'
  ],
  [
    "run --max-calls= x",
    64,
    "--max-calls. Expected: a whole number of model calls, 1 or more, such as 20. See"
  ],
  ["task --steps-max abc x", 64, '--steps-max: "abc". Expected: a whole number from 1 to 10000. See'],
  ["run --env A x", 64, "NAME=VALUE"],
  ["run --depth 0 --repo /proc/nowhere/at/all --demo x", 64, '--depth: "0". Expected: a whole number from 1'],
  [
    "run --depth -1 --repo /proc/nowhere/at/all --demo x",
    64,
    '--depth: "-1". Expected: a whole number from 1'
  ],
  [
    "run --depth=-1 --repo /proc/nowhere/at/all --demo x",
    64,
    '--depth: "-1". Expected: a whole number from 1'
  ],
  ["task --steps-max 0 x", 64, '--steps-max: "0". Expected: a whole number from 1 to 10000. See'],
  ["serve --port 65536", 64, '--port: "65536". Expected: a whole number from 0 to 65535. See'],
  ["serve --operator-port -1", 64, '--operator-port: "-1". Expected: a whole number from 0 to 65535. See'],
  ["run --run-id A --demo x", 65, '--run-id "A" is not a valid run ID. Write 8 to 48 lower-case letters'],
  [
    "run --tool nosuch --demo x",
    65,
    '--tool "nosuch": expected the name of a tool, such as core__get_current_time. docs/guides/tools.md lists the tools'
  ],
  ["run --tool nosuch --demo -- ls", 65, '--tool "nosuch": expected the name of a tool'],
  ["run --ask-tool No.such --demo x", 65, '--ask-tool "No.such": expected the name of a tool'],
  ["task --tool nosuch --demo x", 65, '--tool "nosuch": expected the name of a tool'],
  ["run --output yaml x", 64, "--output"],
  ["run --no-model ls -la", 64, "To run a command, put it after --: cogni-sandbox run [flags] -- CMD ARG…"],
  ["run --no-model ls src", 64, "To run a command, put it after --: cogni-sandbox run [flags] -- CMD ARG…"],
  ["run --no-model x", 64, "an agent needs a model"],
  ["run --agent nobody --demo x", 66, "there is no agent nobody"],
  ["run --prompt-file /proc/nowhere/at/all --demo", 66, "/proc/nowhere/at/all"],
  ["run x", 78, "COGNI_LLM_URL"],
  ["logs run-none", 66, "there is no run run-none"],
  ["inspect run-none", 66, "cogni-sandbox ps --all"],
  ["prune --force", 64, "--all --force"]
]

describe("mistakes", () => {
  for (const [words, code, says] of mistakes) {
    it.effect(`"${words}" prints one line and exits with ${code}`, () =>
      Effect.gen(function* () {
        const said = yield* cli(words.split(" "))
        assert.strictEqual(said.code, code, said.stderr)
        assert.match(said.stderr, /^cogni-sandbox: [^\n]+\n$/u)
        assert.include(said.stderr, says)
        assert.strictEqual(said.stdout, "")
      })
    )
  }

  it.effect("print an object too with --output json", () =>
    Effect.gen(function* () {
      const said = yield* cli(["run", "--output", "json", "hello"])
      const json = JSON.parse(said.stdout)
      assert.containSubset(json, {
        ok: false,
        exitCode: 78,
        error: { code: "configuration", isRetryable: false }
      })
      assert.strictEqual(said.stderr, `cogni-sandbox: ${json.error.message}\n`)
    })
  )

  it.effect("include an incomplete configuration, which ps ignores", () =>
    Effect.gen(function* () {
      const half = { COGNI_LLM_KEY: "sk-planted-7f3c" }
      const said = yield* cli(["run", "hello"], half)
      assert.strictEqual(said.code, 78)
      assert.include(said.stderr, "COGNI_LLM_KEY is set and COGNI_LLM_URL is not")
      assert.notInclude(said.stderr, "sk-planted")
      assert.strictEqual((yield* cli(["ps"], half)).code, 0)
    })
  )

  it.effect("name the key file's variable first if only the URL is set", () =>
    Effect.gen(function* () {
      const said = yield* cli(["run", "hello"], { COGNI_LLM_URL: "http://127.0.0.1:1" })
      assert.include(said.stderr, "COGNI_LLM_URL is set and COGNI_LLM_KEY_FILE (or COGNI_LLM_KEY) is not")
    })
  )
})

/** Each flag that takes a path, and a command line that is complete without it. */
const paths: ReadonlyArray<readonly [flag: string, words: ReadonlyArray<string>]> = [
  ["--workspace", ["run", "--demo", "hello"]],
  ["--repo", ["run", "--demo", "hello"]],
  ["--patch", ["run", "--demo", "hello", "--repo", "/proc/nowhere/at/all"]],
  ["--prompt-file", ["run", "--demo"]],
  ["--workspace", ["task", "--demo", "hello"]],
  ["--patch", ["task", "--demo", "hello"]],
  ["--prompt-file", ["task", "--demo"]],
  ["--patch", ["relay", "retry", "run-000000000001"]],
  ["--host-directory", ["chat", "/proc/nowhere/at/all.yaml"]],
  ["--workspace", ["doctor"]],
  ["--workspace", ["mcp"]],
  ["--temporal-ca-file", ["serve", "--durable"]],
  ["--temporal-cert-file", ["serve", "--durable"]],
  ["--temporal-key-file", ["serve", "--durable"]],
  ["--temporal-api-key-file", ["serve", "--durable"]]
]

describe("empty paths", () => {
  for (const [flag, words] of paths) {
    for (const typed of [[flag, ""], [`${flag}=`]]) {
      it.effect(`are refused, and never mean the current directory: ${words[0]} ${typed.join(" ")}`, () =>
        Effect.gen(function* () {
          const said = yield* cli([...words, ...typed])
          assert.strictEqual(said.code, 64, said.stderr)
          assert.match(said.stderr, /^cogni-sandbox: [^\n]+\n$/u)
          assert.include(said.stderr, `${flag} is empty. Name a `)
          assert.include(said.stderr, ", or leave it out")
        })
      )
    }
  }

  it.effect("are refused for a configuration file, and for -w", () =>
    Effect.gen(function* () {
      assert.include((yield* cli(["run", "-w", "", "--demo", "hello"])).stderr, "--workspace is empty")
      for (const words of [
        ["config", "check", ""],
        ["config", "resolve", "--channel", "c", "--sender", "s", ""],
        ["chat", ""]
      ]) {
        const said = yield* cli(words)
        assert.strictEqual(said.code, 64, said.stderr)
        assert.include(said.stderr, "FILE is empty. Name the configuration")
      }
    })
  )

  for (const command of [["run"], ["task"], ["doctor"], ["mcp"], ["chat"], ["serve"], ["relay", "retry"]]) {
    it.effect(`are tested for every flag whose help shows a path: ${command.join(" ")}`, () =>
      Effect.gen(function* () {
        const help = (yield* cli([...command, "--help"])).stdout
        const shown = [...help.matchAll(/(--[a-z-]+)(?:, -\w)?[ =](?:DIR|FILE|URL\|PATH)\b/gu)]
        const tried = paths.filter(([, words]) => command.every((word, at) => words[at] === word))
        assert.deepStrictEqual(
          shown.map(([, flag]) => flag).toSorted(),
          tried.map(([flag]) => flag).toSorted()
        )
      })
    )
  }
})

describe("commands without an engine", () => {
  it.effect("print help without words, with --help, and with COMMAND --help", () =>
    Effect.gen(function* () {
      for (const words of [[], ["--help"]]) {
        const said = yield* cli(words)
        assert.strictEqual(said.code, 0)
        for (const command of ["run", "demo", "doctor", "ps", "logs", "inspect", "prune"])
          assert.include(said.stdout, command)
      }
      const said = yield* cli(["run", "--help"])
      assert.include(said.stdout, "124  limit: --timeout")
      const task = yield* cli(["task", "--help"])
      assert.include(task.stdout, `(default ${defaultLimits.runtimeSecondsMax / 60}m)`)
      assert.include((yield* cli(["chat", "--help"])).stdout, '"senderId"')
    })
  )

  it.effect("print the version of the package with --version", () =>
    Effect.gen(function* () {
      assert.match((yield* cli(["--version"])).stdout, /cogni-sandbox v\d+\.\d+\.\d+/u)
    })
  )

  it.effect("print nothing for ps without runs, and an empty list as JSON", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* cli(["ps"])).stdout, "")
      assert.strictEqual((yield* cli(["ps", "--all", "--output", "json"])).stdout, "[]\n")
    })
  )
})
