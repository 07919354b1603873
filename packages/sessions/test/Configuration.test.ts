/** Configuration files: defaults, rejected files, positions of problems, and secrets that are not repeated. */
import { assert, describe, it } from "@effect/vitest"
import * as Configuration from "@cogni/sandbox-sessions/config/Configuration"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Arbitrary, Effect, Option, Result, Schema } from "effect"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { parseDocument, stringify } from "yaml"
import { agentNamed } from "./Agents.ts"

const file = "cogni.yaml"

const read = (text: string, toolNames?: ReadonlyArray<string>) =>
  Configuration.parse(text, { file, ...(toolNames === undefined ? {} : { toolNames }) })

/** Returns the problems as `LINE:COL KEY: message`. */
const problemsOf = (text: string, toolNames?: ReadonlyArray<string>) =>
  Effect.map(Effect.result(read(text, toolNames)), (result) =>
    Result.isFailure(result) ? result.failure.lines.map((line) => line.slice(file.length + 1)) : []
  )

const agents = "agent_configs: {a: {}, coder: {}}\nrouting: {default_agent: a}\n"

/** Completes a configuration after the section that a test is about. */
const withAgents = (text: string) => `${text}\n${agents}`

/** The example of the source documents. */
const sample = `
sandbox:
  enabled: false # opt-in
  image: "node:22-slim" # base container image
  workspace_dir: "/workspace" # mount path inside container
  network: "none" # container network mode (none/bridge/host)
  memory_limit: "512m" # memory limit per container
  cpu_limit: "1.0" # CPU limit per container
  timeout_seconds: 300 # auto-kill timeout per container
agent_configs:
  assistant:
    system_prompt: "You are a helpful assistant."
    model_tier: default
    tool_profile: messaging
    sandbox: true
  coder:
    system_prompt: "You are a coding assistant. Focus on writing clean code."
    model_tier: complex
    tool_profile: coding
    sandbox: true
routing:
  default_agent: assistant
  channels:
    discord: coder
  senders:
    "telegram:12345": coder
    "slack:U0*": assistant
`

describe("a file", () => {
  it.effect("with agents only gets safe defaults", () =>
    Effect.gen(function* () {
      const configuration = yield* read("agent_configs: {a: {}}\nrouting: {default_agent: a}\n")
      assert.deepStrictEqual(configuration.sandbox, {
        enabled: false,
        image: "cogni-sandbox/runtime:latest",
        workspaceDirectory: "/workspace",
        network: { mode: "none" },
        packages: [],
        memoryBytesMax: 512 * 1024 ** 2,
        cpusMax: 1,
        timeoutSecondsMax: 300,
        commandTimeoutSecondsMax: 120,
        idleSeconds: 900,
        sessionsMax: 20,
        whenFull: "refuse",
        onUnavailable: "refuse",
        persistentWorkspaces: false
      })
      assert.deepStrictEqual(configuration.agents.list, [agentNamed("a")])
      assert.deepStrictEqual(configuration.routing, { defaultAgent: "a", channels: {}, senders: {} })
      assert.deepStrictEqual(configuration.models, {})
    })
  )

  it.effect("without an image gets the runtime image of the program", () =>
    Effect.gen(function* () {
      const parse = (text: string) => Configuration.parse(text, { file, runtimeImage: "runtime:0123" })
      assert.strictEqual((yield* parse(withAgents("sandbox: {}"))).sandbox.image, "runtime:0123")
      assert.strictEqual((yield* parse(withAgents("sandbox: {image: own}"))).sandbox.image, "own")
    })
  )

  it.effect("can set every key", () =>
    Effect.gen(function* () {
      const { agents, models, routing, sandbox, warnings } = yield* read(`
sandbox:
  enabled: true
  image: cogni/agent@sha256:0123
  network: internal:cogni-net
  allow_unsafe_network: true
  packages: ["npm:@types/*", "pypi:requests"]
  memory_limit: 1.5g
  cpu_limit: 0.25
  timeout_seconds: 60
  idle_seconds: 30
  sessions_max: 3
  when_full: evict_idle
  on_unavailable: refuse
  persistent_workspaces: true
  command_timeout_seconds: 10
agent_configs:
  a:
    system_prompt: |
      Be brief.
      !important
    model_tier: fast
    tool_profile: full
    tool_overrides: {allow: [shell.exec], deny: [process.*]}
    sandbox: true
routing: {default_agent: a, channels: {x: a}, senders: {"x:1": a}}
models: {fast: gpt-4o-mini}
`)
      assert.deepStrictEqual(sandbox, {
        enabled: true,
        image: "cogni/agent@sha256:0123",
        workspaceDirectory: "/workspace",
        network: { mode: "internal", networkName: "cogni-net" },
        packages: ["npm:@types/*", "pypi:requests"],
        memoryBytesMax: 1.5 * 1024 ** 3,
        cpusMax: 0.25,
        timeoutSecondsMax: 60,
        commandTimeoutSecondsMax: 10,
        idleSeconds: 30,
        sessionsMax: 3,
        whenFull: "evict_idle",
        onUnavailable: "refuse",
        persistentWorkspaces: true
      })
      assert.deepStrictEqual(Option.getOrThrow(agents.get("a")), {
        name: "a",
        systemPrompt: "Be brief.\n!important\n",
        modelTier: "fast",
        toolProfile: "full",
        toolOverrides: { allow: ["shell.exec"], deny: ["process.*"] },
        sandbox: true
      })
      assert.deepStrictEqual(routing, { defaultAgent: "a", channels: { x: "a" }, senders: { "x:1": "a" } })
      assert.deepStrictEqual(models, { fast: "gpt-4o-mini" })
      assert.deepStrictEqual(warnings, [])
    })
  )

  it.effect("a file of the source documents is valid", () =>
    Effect.gen(function* () {
      const { agents, sandbox } = yield* read(sample)
      assert.deepStrictEqual(
        agents.list.map(({ modelTier, name, sandbox, toolProfile }) => [
          name,
          modelTier,
          toolProfile,
          sandbox
        ]),
        [
          ["assistant", "default", "messaging", true],
          ["coder", "complex", "coding", true]
        ]
      )
      assert.strictEqual(sandbox.image, "node:22-slim")
    })
  )

  it.effect("a file of the documentation is valid", () =>
    Effect.gen(function* () {
      const page = readFileSync(
        fileURLToPath(new URL("../../../docs/reference/configuration.md", import.meta.url)),
        "utf8"
      )
      const [example, ...more] = [...page.matchAll(/^```yaml\n([\s\S]*?)^```$/gmu)].map(([, text]) => text!)
      assert.deepStrictEqual(more, [])
      const { agents, warnings } = yield* read(example!)
      assert.isAbove(agents.list.length, 1)
      assert.deepStrictEqual(warnings, [])
      // Every key of the schema has a row, and every row has a key.
      const rows = [...page.matchAll(/^\| `([\w.<>]+)` \|/gmu)].map(([, key]) => key!)
      assert.deepStrictEqual(rows.toSorted(), keysOf(Configuration.jsonSchema()).toSorted())
    })
  )

  it.effect("with a short container lifetime uses it as the command time limit", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* read(withAgents("sandbox: {timeout_seconds: 60}"))
      assert.strictEqual(sandbox.commandTimeoutSecondsMax, 60)
    })
  )

  it.effect("limits prompts to 64 KiB, counted in bytes", () =>
    Effect.gen(function* () {
      const of = (prompt: string) =>
        `agent_configs: {a: {system_prompt: ${prompt}}}\nrouting: {default_agent: a}\n`
      assert.deepStrictEqual(yield* problemsOf(of("é".repeat(32 * 1024))), [])
      assert.deepStrictEqual(yield* problemsOf(of("é".repeat(32 * 1024 + 1))), [
        "1:21 agent_configs.a.system_prompt: Expected text of 1 to 65536 bytes without NUL"
      ])
    })
  )

  it.effect("is an immutable snapshot", () =>
    Effect.gen(function* () {
      const configuration = yield* read(sample)
      const frozen = (value: unknown): boolean =>
        typeof value !== "object" ||
        value === null ||
        (Object.isFrozen(value) && Object.values(value).every(frozen))
      assert.isTrue(frozen(configuration))
    })
  )

  it.effect("can use names of members of Object", () =>
    Effect.gen(function* () {
      const { agents, routing } = yield* read(
        "agent_configs: {tostring: {}, valueof: {}}\nrouting: {default_agent: tostring, channels: {toString: valueof, hasOwnProperty: tostring}}\n"
      )
      assert.isTrue(Option.isSome(agents.get("tostring")))
      for (const name of ["toString", "constructor", "__proto__", "hasOwnProperty"]) {
        assert.isTrue(Option.isNone(agents.get(name)), name)
      }
      assert.strictEqual(routing.channels["hasOwnProperty"], "tostring")
      assert.deepStrictEqual(
        yield* problemsOf("agent_configs: {a: {}}\nrouting: {default_agent: valueOf}\n"),
        [
          "2:11 routing.default_agent: Expected the name of an agent: 1 to 64 lower-case letters, digits, `_` and `-`, beginning with a letter"
        ]
      )
    })
  )
})

/** Returns all keys of the published schema, such as `agent_configs.<name>.sandbox`. */
const keysOf = (schema: unknown, prefix = ""): ReadonlyArray<string> => {
  const { patternProperties = {}, properties = {} } = schema as Record<string, Record<string, unknown>>
  return [
    ...Object.entries(properties).map(([key, inner]) => [key, inner] as const),
    ...Object.values(patternProperties).map((inner) => ["<name>", inner] as const)
  ].flatMap(([key, inner]) => {
    const within = keysOf(inner, `${prefix}${key}.`)
    return within.length === 0 ? [`${prefix}${key}`] : within
  })
}

const refused: ReadonlyArray<readonly [text: string, ...says: ReadonlyArray<string>]> = [
  ["", "1:1: Expected a mapping"],
  ["5", "1:1: Expected a mapping"],
  ["[]", "1:1: Expected a mapping"],
  ["a: 1", "1:1 a: Unknown key", "1:1 agent_configs: Expected this key", "1:1 routing: Expected this key"],
  ["agent_configs: {}\nrouting: {default_agent: a}", "1:1 agent_configs: Expected at least one agent"],
  ["agent_configs: {a: }\nrouting: {default_agent: a}", "1:17 agent_configs.a: Expected a mapping"],
  ["agent_configs: {a: {}}\nrouting:", "2:1 routing: Expected a mapping"],
  ["agent_configs: {a: {}}\nrouting: {}", "2:1 routing.default_agent: Expected this key"],
  [
    "agent_configs: {A: {}}\nrouting: {default_agent: a}",
    "1:17 agent_configs.A: Expected the name of an agent"
  ],
  [
    withAgents("sandbox: {enabled: yes}"),
    "1:11 sandbox.enabled: Expected true or false (yes, no, on and off are strings in YAML 1.2)"
  ],
  [withAgents('sandbox: {enabled: "true"}'), "1:11 sandbox.enabled: Expected true or false"],
  [withAgents("sandbox: {memory: 1g}"), "1:11 sandbox.memory: Unknown key. Valid keys: enabled, image, "],
  [
    withAgents("sandbox: {network: bridge, allow_unsafe_network: true}"),
    "bridge (an egress path around the proxy) and host (no isolation)"
  ],
  [withAgents("sandbox: {network: host}"), "1:11 sandbox.network: Expected none, or internal:NAME"],
  [
    withAgents("sandbox: {network: internal:x}"),
    "1:11 sandbox.network: Expected none: containers on one network can reach each other"
  ],
  [
    withAgents('sandbox: {network: "internal:-x", allow_unsafe_network: true}'),
    "1:11 sandbox.network: Expected none, or internal:NAME"
  ],
  [withAgents("sandbox: {workspace_dir: /work}"), "1:11 sandbox.workspace_dir: Expected /workspace"],
  ...["512q", "1m", "1025g", "1000", "-1g", "[1]", "6291456.5", "1e9"].map(
    (size) => [withAgents(`sandbox: {memory_limit: ${size}}`), "sandbox.memory_limit: Expected a"] as const
  ),
  ...["0", '"1025"', "one", "1.0.0"].map(
    (cpus) =>
      [withAgents(`sandbox: {cpu_limit: ${cpus}}`), "1:11 sandbox.cpu_limit: Expected from 0.01"] as const
  ),
  [
    withAgents("sandbox: {timeout_seconds: 0}"),
    "1:11 sandbox.timeout_seconds: Expected a whole number from 1 to 86400"
  ],
  [withAgents("sandbox: {timeout_seconds: 5m}"), "1:11 sandbox.timeout_seconds: Expected number"],
  [withAgents("sandbox: {timeout_seconds: 1.5}"), "1:11 sandbox.timeout_seconds: Expected an integer"],
  [
    withAgents("sandbox: {timeout_seconds: 0o17}"),
    "1:28 sandbox.timeout_seconds: Expected a plain decimal number"
  ],
  [
    withAgents("sandbox: {timeout_seconds: 60, command_timeout_seconds: 61}"),
    "1:32 sandbox.command_timeout_seconds: Expected at most timeout_seconds (60)"
  ],
  [
    withAgents("sandbox: {command_timeout_seconds: 301}"),
    "1:11 sandbox.command_timeout_seconds: Expected at most timeout_seconds (300)"
  ],
  [withAgents("sandbox: {idle_seconds: -1}"), "Expected a whole number from 1 to 604800"],
  [withAgents("sandbox: {sessions_max: 1001}"), "Expected a whole number from 1 to 1000"],
  [withAgents("sandbox: {when_full: wait}"), "1:11 sandbox.when_full: Expected one of refuse, evict_idle"],
  [withAgents("sandbox: {on_unavailable: ignore}"), "Expected one of refuse, host"],
  [withAgents("sandbox: {image: 'UPPER'}"), "1:11 sandbox.image: Expected the name of an image"],
  [withAgents("sandbox: {image: 17}"), "1:11 sandbox.image: Expected string"],
  [withAgents("sandbox:"), "1:1 sandbox: Expected a mapping"],
  [withAgents("models: {fast: 'a b'}"), "1:10 models.fast: Expected the name of a model"],
  [
    withAgents("models: {turbo: x}"),
    "1:10 models.turbo: Unknown key. Valid keys: fast, default, complex, local"
  ],
  [
    withAgents("models: {fast: x}"),
    "2:17 agent_configs.a.model_tier: Expected a tier that has a model in models (fast), got default",
    "2:24 agent_configs.coder.model_tier: Expected a tier"
  ],
  [
    "agent_configs: {a: {model_tier: turbo}}\nrouting: {default_agent: a}",
    "1:21 agent_configs.a.model_tier: Expected one of fast, default, complex, local"
  ],
  [
    "agent_configs: {a: {tool_profile: codign}}\nrouting: {default_agent: a}",
    "1:21 agent_configs.a.tool_profile: Expected one of minimal, messaging, coding, full"
  ],
  [
    "agent_configs: {a: {tool_overrides: {allow: shell.exec}}}\nrouting: {default_agent: a}",
    "1:38 agent_configs.a.tool_overrides.allow: Expected array"
  ],
  [
    "agent_configs: {a: {tool_overrides: {deny: ['shell exec']}}}\nrouting: {default_agent: a}",
    "1:45 agent_configs.a.tool_overrides.deny.0: Expected the name of a tool"
  ],
  [
    "agent_configs: {a: {tool_overrides: {denied: []}}}\nrouting: {default_agent: a}",
    "1:38 agent_configs.a.tool_overrides.denied: Unknown key. Valid keys: allow, deny"
  ],
  ...["''", '"x\\0"', '"\\ud800"'].map(
    (prompt) =>
      [
        `agent_configs: {a: {system_prompt: ${prompt}}}\nrouting: {default_agent: a}`,
        "1:21 agent_configs.a.system_prompt: Expected text of 1 to 65536 bytes without NUL"
      ] as const
  ),
  [
    "agent_configs: {coder: {}}\nrouting: {default_agent: codre}",
    "2:11 routing.default_agent: Expected the name of an agent in agent_configs"
  ],
  [
    "agent_configs: {coder: {}}\nrouting: {default_agent: coder, channels: {discord: code}}",
    "2:44 routing.channels.discord: Expected the name of an agent in agent_configs"
  ],
  [
    "agent_configs: {a: {}}\nrouting: {default_agent: a, channels: {'a b': a}}",
    '2:40 routing.channels."a b": Expected the name of a channel'
  ],
  [
    "agent_configs: {a: {}}\nrouting: {default_agent: a, senders: {'x:1': b}}",
    '2:39 routing.senders."x:1": Expected the name of an agent in agent_configs'
  ],
  [
    "agent_configs: {a: {}}\nrouting: {default_agent: a, senders: {12345: a}}",
    "2:39 routing.senders.12345: Expected CHANNEL:SENDER"
  ],
  [
    "agent_configs: {a: {}}\nrouting: {default_agent: a, senders: {'*:1': a}}",
    '2:39 routing.senders."*:1": Expected CHANNEL:SENDER'
  ],
  [
    "agent_configs: {a: {}}\nrouting: {default_agent: a, senders: {'x:{a,b}': a}}",
    '2:39 routing.senders."x:{a,b}": Expected a pattern of *, ? and [..] alone, got {'
  ],
  [
    "agent_configs: {a: {}}\nrouting: {default_agent: a, senders: {'x:a!': a, 'x:a\\!': a}}",
    "Expected one rule for a sender: an earlier rule names the same one"
  ],
  [`${agents}routing: {default_agent: coder}\n`, "3:1 routing: Expected each key once"]
]

describe("an invalid file", () => {
  for (const [text, ...says] of refused) {
    it.effect(`${says[0]} … ${text.split("\n")[0]}`, () =>
      Effect.gen(function* () {
        const problems = yield* problemsOf(text)
        for (const said of says) {
          assert.isTrue(
            problems.some((problem) => problem.includes(said)),
            `${said}\n${problems.join("\n")}`
          )
        }
        // No problem is repeated, and there are few others.
        assert.strictEqual(new Set(problems).size, problems.length)
        assert.isAtMost(problems.length, says.length + 2, problems.join("\n"))
      })
    )
  }

  it.effect("is reported with all problems, in the order of the file", () =>
    Effect.gen(function* () {
      const problems = yield* problemsOf(`routing:
  default_agent: Nobody
  senders: {"x:1": a}
sandbox: {enabled: maybe, network: bridge, timeout_seconds: 5m}
agent_configs: {a: {api_key: x, model_tier: huge}}
more: 1
`)
      assert.deepStrictEqual(
        problems.map((problem) => problem.split(/: (?=Expected|Unknown)/u)[0]),
        [
          "2:3 routing.default_agent",
          "4:11 sandbox.enabled",
          "4:27 sandbox.network",
          "4:44 sandbox.timeout_seconds",
          "5:21 agent_configs.a.api_key",
          "5:33 agent_configs.a.model_tier",
          "6:1 more"
        ]
      )
    })
  )

  it.effect("is reported with conflicts between keys once each key is valid", () =>
    Effect.gen(function* () {
      const problems = yield* problemsOf(`routing:
  default_agent: nobody
  senders: {"x:[": a}
sandbox: {network: internal:x, command_timeout_seconds: 301}
agent_configs: {a: {}}
`)
      assert.deepStrictEqual(
        problems.map((problem) => problem.split(/: (?=Expected|Unknown)/u)[0]),
        [
          "2:3 routing.default_agent",
          '3:13 routing.senders."x:["',
          "4:11 sandbox.network",
          "4:32 sandbox.command_timeout_seconds"
        ]
      )
    })
  )

  it.effect("is reported with at most a hundred problems, and the number of the others", () =>
    Effect.gen(function* () {
      const text = Array.from({ length: 150 }, (_, at) => `k${at}: 1\n`).join("")
      const error = yield* Effect.flip(read(text))
      assert.lengthOf(error.lines, 101)
      assert.strictEqual(error.lines.at(-1), "cogni.yaml: and 52 more")
    })
  )

  it.effect("is reported with unknown tools, if the existing ones are known", () =>
    Effect.gen(function* () {
      const text =
        "agent_configs: {a: {tool_overrides: {allow: [web.fetch, mine.it], deny: [shell.exce, process.*, '*']}}}\nrouting: {default_agent: a}\n"
      assert.deepStrictEqual(yield* problemsOf(text), [])
      const problems = yield* problemsOf(text, ["mine.it", "shell.exec"])
      assert.deepStrictEqual(
        problems,
        ["1:46 agent_configs.a.tool_overrides.allow.0", "1:74 agent_configs.a.tool_overrides.deny.0"].map(
          (place) => `${place}: Expected an existing tool: mine.it, shell.exec`
        )
      )
    })
  )
})

describe("a misplaced secret", () => {
  const secret = "sk-live-51H8xQZ0aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789abcdefghijk"

  const places: ReadonlyArray<string> = [
    withAgents(`api_key: ${secret}`),
    withAgents(`sandbox: {api_key: ${secret}}`),
    withAgents(`sandbox: {enabled: ${secret}}`),
    withAgents(`sandbox: {image: "${secret} x"}`),
    withAgents(`sandbox: {memory_limit: ${secret}}`),
    withAgents(`sandbox: {network: ${secret}}`),
    withAgents(`sandbox: {timeout_seconds: ${secret}}`),
    withAgents(`sandbox: ${secret}`),
    withAgents(`models: {fast: "${secret} x"}`),
    `agent_configs: {a: ${secret}}\nrouting: {default_agent: ${secret}}`,
    `agent_configs: {a: {model_tier: ${secret}, tool_overrides: {allow: ["${secret} "]}}}\nrouting: {default_agent: a}`,
    `agent_configs: {a: {}}\nrouting: {default_agent: a, senders: {"x:[${secret}": ${secret}}}`,
    `agent_configs: {a: {}}\nrouting: {default_agent: a, channels: {"${secret}!": a}}`,
    `"${secret}": 1`,
    secret,
    `[${secret}`,
    `a: "${secret}`,
    `a: *${secret}`,
    `a: !${secret} 1`,
    `? [${secret}]\n: 1`
  ]

  for (const text of places) {
    it.effect(`is not repeated: ${text.slice(0, 60).replaceAll(secret.slice(0, 20), "…")}`, () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(read(text))
        for (const said of [error.message, String(error), JSON.stringify(error)]) {
          assert.notInclude(said, secret)
          assert.notInclude(said, secret.slice(0, 45))
        }
      })
    )
  }
})

describe("the warnings", () => {
  const cases: ReadonlyArray<readonly [text: string, keys: ReadonlyArray<string>]> = [
    ["sandbox: {enabled: true}\nagent_configs: {a: {}}", []],
    ["agent_configs: {a: {}}", ["sandbox.enabled"]],
    ["sandbox: {enabled: true}\nagent_configs: {a: {sandbox: false}, b: {}}", ["agent_configs.a.sandbox"]],
    ["sandbox: {enabled: true, on_unavailable: host}\nagent_configs: {a: {}}", ["sandbox.on_unavailable"]],
    [
      "sandbox: {enabled: true, allow_unsafe_network: true}\nagent_configs: {a: {}}",
      ["sandbox.allow_unsafe_network"]
    ]
  ]
  for (const [text, keys] of cases) {
    it.effect(`report what runs outside of sandboxes: ${keys.join() || "nothing"}`, () =>
      Effect.map(read(`${text}\nrouting: {default_agent: a}\n`), ({ warnings }) =>
        assert.deepStrictEqual(
          warnings.map(({ key }) => key),
          keys
        )
      )
    )
  }
})

describe("a fingerprint", () => {
  const of = (text: string) =>
    Effect.map(read(text), (configuration) =>
      Configuration.fingerprint(configuration, Option.getOrThrow(configuration.agents.get("a")))
    )
  const base =
    "sandbox: {enabled: true}\nagent_configs: {a: {system_prompt: x}, b: {}}\nrouting: {default_agent: a}\n"

  it.effect("changes with every input of a session, and with nothing else", () =>
    Effect.gen(function* () {
      const before = yield* of(base)
      const same: ReadonlyArray<readonly [string, string]> = [
        ["{enabled: true}", "{memory_limit: 512m, enabled: true}"],
        ["{enabled: true}", "{enabled: true, sessions_max: 3, idle_seconds: 5, when_full: evict_idle}"],
        ["b: {}", "b: {system_prompt: y}"],
        ["default_agent: a", "default_agent: b"]
      ]
      for (const [part, other] of same)
        assert.strictEqual(yield* of(base.replace(part, other)), before, other)
      const different: ReadonlyArray<readonly [string, string]> = [
        ["{enabled: true}", "{enabled: false}"],
        ["{enabled: true}", "{enabled: true, memory_limit: 513m}"],
        ["{enabled: true}", "{enabled: true, on_unavailable: host}"],
        ["system_prompt: x", "system_prompt: y"],
        ["system_prompt: x", "system_prompt: x, sandbox: false"],
        ["system_prompt: x", "system_prompt: x, tool_overrides: {deny: [shell.exec]}"],
        ["routing:", "models: {default: m}\nrouting:"]
      ]
      for (const [part, other] of different)
        assert.notStrictEqual(yield* of(base.replace(part, other)), before, other)
    })
  )
})

const ajv = new Ajv2020({ strict: true, allErrors: true })
const validate = ajv.compile(Configuration.jsonSchema())

/** Messages of rules between several keys, which a JSON Schema cannot express. */
const byRule =
  /agent in agent_configs|can reach each other|at most timeout_seconds|processors|size from|tier that has a model|pattern of|one rule for a sender|each key once|decimal number|without NUL|range in/u

describe("the published schema", () => {
  it("describes every key", () => {
    const undescribed = (schema: unknown, path: string): ReadonlyArray<string> => {
      const {
        description,
        patternProperties = {},
        properties = {}
      } = schema as {
        readonly description?: string
        readonly properties?: Record<string, unknown>
        readonly patternProperties?: Record<string, unknown>
      }
      return [
        ...(description === undefined ? [path] : []),
        ...Object.entries({ ...properties, ...patternProperties }).flatMap(([key, inner]) =>
          undescribed(inner, `${path}.${key}`)
        )
      ]
    }
    assert.deepStrictEqual(undescribed(Configuration.jsonSchema(), ""), [])
  })

  it("accepts valid files", () => {
    assert.isTrue(validate(parseDocument(sample).toJS()), JSON.stringify(validate.errors))
    assert.isTrue(validate(parseDocument(agents).toJS()))
  })

  it.effect("refuses invalid files", () =>
    Effect.gen(function* () {
      for (const [text] of refused) {
        const problems = yield* problemsOf(text)
        if (problems.every((problem) => byRule.test(problem))) continue
        assert.isFalse(validate(parseDocument(text, { uniqueKeys: false }).toJS()), text)
      }
    })
  )

  it.effect.prop(
    "accepts the same values as the code",
    [Arbitrary.schema(Schema.toEncoded(Configuration.File))],
    ([value]) =>
      Effect.gen(function* () {
        const written = JSON.parse(JSON.stringify(value)) as unknown
        assert.isTrue(validate(written), JSON.stringify([written, validate.errors]))
        const problems = yield* problemsOf(stringify(written))
        assert.deepStrictEqual(
          problems.filter((problem) => !byRule.test(problem)),
          [],
          stringify(written)
        )
      }),
    { arbitrary: { runs: 150, seed: "configuration" } }
  )
})
