import { assert, describe, it } from "@effect/vitest"
import { RunId, SandboxRunner, SandboxSpec } from "@cogni/sandbox-core"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as SpecFields from "@cogni/sandbox-core/SpecFields"
import { Effect, Schema } from "effect"

const least = { image: "agent:1", argv: ["agent"] }
const MiB = 1024 ** 2
const payer = { model: "m", identity: { billingAccountId: "b" } }
const withBudget = (budget: object) => ({ ...least, llm: { ...payer, budget } })

/** The problem, the field that the message must name, and words of its remedy. */
const refused: ReadonlyArray<readonly [what: string, input: unknown, field: string, remedy: string]> = [
  ["a missing spec", undefined, "", "Expected object"],
  ["a missing image", { argv: ["agent"] }, "image", "Missing key"],
  ["an empty image name", { ...least, image: "" }, "image", "the name of an image"],
  ["an image name that is an option", { ...least, image: "--privileged" }, "image", "the name of an image"],
  ["a missing argv", { image: "agent:1" }, "argv", "Missing key"],
  ["an empty argv", { ...least, argv: [] }, "argv.0", "Expected a program to run"],
  ["an argument with NUL", { ...least, argv: ["a\0b"] }, "argv.0", "without NUL"],
  [
    "an argument over the kernel's cap",
    { ...least, argv: ["agent", "x".repeat(131_072)] },
    "argv.1",
    "put long text into a file"
  ],
  [
    "an argument over the cap only in bytes",
    { ...least, argv: ["agent", "☃".repeat(43_691)] },
    "argv.1",
    "at most 131071 bytes"
  ],
  [
    "arguments that are too long together",
    { ...least, argv: Array.from({ length: 16 }, () => "x".repeat(100_000)) },
    "Expected argv and env",
    "put long text into a file"
  ],
  [
    "a variable with a space in its name",
    { ...least, env: { "A B": "" } },
    "env.A B",
    "letters, digits and underscores"
  ],
  ["a variable without a name", { ...least, env: { "": "" } }, "env.", "letters, digits and underscores"],
  [
    "a variable that starts with a digit",
    { ...least, env: { "1A": "" } },
    "env.1A",
    "not start with a digit"
  ],
  [
    "a variable with = in its name",
    { ...least, env: { "A=B": "" } },
    "env.A=B",
    "letters, digits and underscores"
  ],
  [
    "a variable that the dynamic loader reads",
    { ...least, env: { LD_PRELOAD: "/workspace/x.so" } },
    "env.LD_PRELOAD",
    "env(1)"
  ],
  [
    "a variable that the entrypoint reads",
    { ...least, env: { COGNI_HOLD: "0" } },
    "env.COGNI_HOLD",
    "env(1)"
  ],
  ["a variable that carries others", { ...least, env: { COGNI_ENV_0: "A=b" } }, "env.COGNI_ENV_0", "env(1)"],
  ["the number of carried variables", { ...least, env: { COGNI_ENV: "9" } }, "env.COGNI_ENV", "env(1)"],
  ["a variable of the entrypoint's shell", { ...least, env: { OPTIND: "x" } }, "env.OPTIND", "env(1)"],
  [
    "a variable that is too long with its name",
    { ...least, env: { NAME: "x".repeat(128 * 1024 - 37) } },
    "env.NAME",
    "at most 131039 bytes with its name"
  ],
  ["a variable with NUL", { ...least, env: { A: "\0" } }, "env.A", "without NUL"],
  ["a malformed run id", { ...least, runId: "../run" }, "runId", "8 to 48 lower-case letters"],
  [
    "a time limit of 0",
    { ...least, limits: { runtimeSecondsMax: 0 } },
    "limits.runtimeSecondsMax",
    "from 1 to 86400"
  ],
  [
    "a negative time limit",
    { ...least, limits: { runtimeSecondsMax: -1 } },
    "limits.runtimeSecondsMax",
    "from 1 to 86400"
  ],
  [
    "a negative grace",
    { ...least, limits: { stopGraceSecondsMax: -1 } },
    "limits.stopGraceSecondsMax",
    "from 0 to 120"
  ],
  [
    "a memory limit of 0",
    { ...least, limits: { memoryBytesMax: 0 } },
    "limits.memoryBytesMax",
    "minimum is 6 MiB"
  ],
  [
    "a memory limit under the engine's minimum",
    { ...least, limits: { memoryBytesMax: 6 * MiB - 1 } },
    "limits.memoryBytesMax",
    "from 6291456"
  ],
  [
    "a process limit of 0",
    { ...least, limits: { processesMax: 0 } },
    "limits.processesMax",
    "from 4 to 32768"
  ],
  ["a processor limit of 0", { ...least, limits: { cpusMax: 0 } }, "limits.cpusMax", "from 0.01 to 1024"],
  [
    "a processor limit that is not a number",
    { ...least, limits: { cpusMax: Number.NaN } },
    "limits.cpusMax",
    "finite"
  ],
  ["an output limit of 0", { ...least, limits: { outputBytesMax: 0 } }, "limits.outputBytesMax", "from 1 to"],
  [
    "a negative limit of retained output",
    { ...least, limits: { outputRetainedBytesMax: -1 } },
    "limits.outputRetainedBytesMax",
    "from 0 to"
  ],
  [
    "a workspace limit of 0",
    { ...least, limits: { workspaceBytesMax: 0 } },
    "limits.workspaceBytesMax",
    "from 65536 to"
  ],
  [
    "a temporary limit of 0",
    { ...least, limits: { temporaryBytesMax: 0 } },
    "limits.temporaryBytesMax",
    "from 65536 to"
  ],
  ["a limit of 0 open files", { ...least, limits: { filesOpenMax: 0 } }, "limits.filesOpenMax", "from 16 to"],
  [
    "a limit that is not an integer",
    { ...least, limits: { processesMax: 10.5 } },
    "limits.processesMax",
    "integer"
  ],
  [
    "a prompt of 5 MiB",
    { ...least, inputs: [{ name: "prompt.txt", content: "x".repeat(5 * MiB) }] },
    "inputs.0.content",
    "put more into the workspace"
  ],
  [
    "an input outside its directory",
    { ...least, inputs: [{ name: "../../etc/passwd", content: "" }] },
    "inputs.0.name",
    "a plain file name"
  ],
  [
    "a hidden input",
    { ...least, inputs: [{ name: ".bashrc", content: "" }] },
    "inputs.0.name",
    "a plain file name"
  ],
  [
    "too many inputs",
    { ...least, inputs: Array.from({ length: 65 }, (_, index) => ({ name: `i${index}`, content: "" })) },
    "inputs",
    "at most 64"
  ],
  [
    "a relative workspace",
    { ...least, workspace: { type: "directory", path: "project" } },
    "workspace.path",
    "an absolute path"
  ],
  ["the host's network", { ...least, network: { mode: "host" } }, "network", "none"],
  [
    "a network name that is an option",
    { ...least, network: { mode: "internal", networkName: "container:1" } },
    "network",
    "networkName"
  ],
  ["an unknown field", { ...least, privileged: true }, "privileged", "no excess property"],
  [
    "an unknown limit",
    { ...least, limits: { swapBytesMax: 1 } },
    "limits.swapBytesMax",
    "no excess property"
  ],
  ["a model without an identity", { ...least, llm: { model: "m" } }, "llm.identity", "Missing key"],
  ["a budget of 0 calls", withBudget({ callsMax: 0 }), "llm.budget.callsMax", "from 1 to 1000000"],
  ["a budget of 0 dollars", withBudget({ costUsdMax: 0 }), "llm.budget.costUsdMax", "US dollars"],
  ["a budget of half a token", withBudget({ outputTokensMax: 0.5 }), "llm.budget.outputTokensMax", "integer"],
  ["an unknown budget", withBudget({ tokensMax: 1 }), "llm.budget.tokensMax", "no excess property"],
  [
    "an unknown effect of a spent budget",
    withBudget({ onExhausted: "ask" }),
    "llm.budget.onExhausted",
    "stop"
  ],
  [
    "a model under an empty name",
    { ...least, llm: { ...payer, models: { "": "m" } } },
    "llm.models",
    "no excess property"
  ],
  [
    "an unknown policy for unknown fields",
    { ...least, llm: { ...payer, unknownFields: "keep" } },
    "llm.unknownFields",
    "refuse"
  ],
  ["a tool without a namespace", { ...least, tools: ["rm"] }, "tools.0", "core__get_current_time"],
  [
    "too many tools",
    { ...least, tools: Array.from({ length: 65 }, (_, index) => `core__tool_${index}`) },
    "tools",
    "at most 64"
  ],
  ["an unknown policy for canaries", { ...least, canaries: "on" }, "canaries", "warn"]
]

describe("SandboxSpec", () => {
  it.effect("requires only an image and an argv: everything else has a default", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* SpecDecoder.decode(least), {
        image: "agent:1",
        argv: ["agent"],
        env: {},
        workspace: { type: "temporary" },
        inputs: [],
        memory: false,
        network: { mode: "none" },
        limits: {
          runtimeSecondsMax: 600,
          stopGraceSecondsMax: 5,
          memoryBytesMax: 1024 * MiB,
          processesMax: 256,
          cpusMax: 2,
          outputBytesMax: 64 * MiB,
          outputRetainedBytesMax: 4 * MiB,
          workspaceBytesMax: 2048 * MiB,
          temporaryBytesMax: 256 * MiB,
          filesOpenMax: 4096
        },
        tools: [],
        packages: [],
        canaries: "off"
      })
    })
  )

  it.effect.prop(
    "every spec survives encoding and decoding",
    [SandboxSpec.SandboxSpec],
    ([spec]) =>
      Effect.gen(function* () {
        const written = yield* Schema.encodeEffect(SandboxSpec.SandboxSpec)(spec)
        assert.deepEqual(
          yield* SpecDecoder.decode(JSON.parse(JSON.stringify(written))),
          JSON.parse(JSON.stringify(spec))
        )
      }),
    { arbitrary: { runs: 150, seed: "spec" } }
  )

  it.effect("accepts the longest argument and the largest input", () =>
    Effect.gen(function* () {
      const spec = yield* SpecDecoder.decode({
        ...least,
        argv: ["agent", "x".repeat(SpecFields.argumentBytesMax)],
        inputs: [{ name: "prompt.txt", content: "x".repeat(SpecFields.inputBytesMax) }],
        limits: { memoryBytesMax: 6 * MiB }
      })
      assert.strictEqual(spec.argv[1]?.length, SpecFields.argumentBytesMax)
    })
  )

  it.effect.each(refused)(
    "refuses %s with field and remedy, and starts nothing",
    ([, input, field, remedy]) =>
      Effect.gen(function* () {
        const runner = yield* SandboxRunner.SandboxRunner
        const error = yield* Effect.flip(runner.run(input as SandboxSpec.SandboxSpecInput))
        if (error.reason._tag !== "InvalidSpec") return assert.fail(error.message)
        assert.strictEqual(error.code, "invalid_request")
        assert.isUndefined(error.runId)
        const named = error.reason.problems.filter((problem) => problem.startsWith(field))
        assert.isNotEmpty(named, `no problem names ${field}: ${error.message}`)
        assert.isTrue(
          named.some((problem) => problem.includes(remedy)),
          `no problem says "${remedy}": ${named.join("; ")}`
        )
      }).pipe(Effect.provide(SandboxRunner.layerMemory({ program: () => Effect.die("began all the same") })))
  )

  it.effect("reports every problem, not just the first", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner.SandboxRunner
      const error = yield* Effect.flip(
        runner.run({
          image: "",
          argv: [""],
          runId: RunId.RunId.make("run-problems0001"),
          limits: { cpusMax: -1, processesMax: 0 }
        })
      )
      for (const field of ["image", "limits.cpusMax", "limits.processesMax"])
        assert.include(error.message, `${field}: `)
    }).pipe(Effect.provide(SandboxRunner.layerMemory()))
  )

  it.effect("repeats nothing of the refused input in its error", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner.SandboxRunner
      const secret = "sk-live-0123456789"
      const error = yield* Effect.flip(
        runner.run({
          image: ` ${secret}`,
          argv: [`${secret}\0`],
          env: { KEY: `${secret}\0` },
          inputs: [{ name: `/${secret}`, content: secret }],
          workspace: { type: "directory", path: secret }
        })
      )
      assert.notInclude(`${error.message}${String(error)}${JSON.stringify(error)}`, secret)
    }).pipe(Effect.provide(SandboxRunner.layerMemory()))
  )
})
