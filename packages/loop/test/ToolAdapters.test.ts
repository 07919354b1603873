/** One session through every adapter and its own client, with equal names, schemas and answers. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js"
import * as Tool from "@cogni/sandbox-loop/Tool"
import * as AiSdkTools from "@cogni/sandbox-loop/AiSdkTools"
import * as FileTools from "../src/FileTools.ts"
import * as McpServer from "@cogni/sandbox-loop/McpServer"
import * as OpenAiTools from "@cogni/sandbox-loop/OpenAiTools"
import * as ProcessTable from "../src/ProcessTable.ts"
import * as ProcessTools from "../src/ProcessTools.ts"
import * as ShellTools from "@cogni/sandbox-loop/ShellTools"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema, type Scope } from "effect"
import { AiModel } from "./AiModel.ts"
import { command, open, session, toolNamed } from "./ToolWorld.ts"

/** A model's view of tools and calls. */
interface Adapter {
  readonly tools: ReadonlyArray<{
    readonly name: string
    readonly description: string
    readonly schema: unknown
  }>
  readonly call: (
    name: string,
    input: unknown
  ) => Effect.Effect<{ readonly ok: boolean; readonly text: string }>
}

type Adapt = (registry: ToolRegistry.ToolRegistry) => Effect.Effect<Adapter, unknown, Scope.Scope>

const isOk = (text: string) => !/^[a-z_]+: /u.test(text)

const chat: Adapt = (registry) =>
  Effect.succeed({
    tools: OpenAiTools.chatTools(registry).map(({ function: { description, name, parameters } }) => ({
      name,
      description,
      schema: parameters
    })),
    call: (name, input) =>
      Effect.map(
        OpenAiTools.execute(
          registry,
          { id: "c1", function: { name, arguments: JSON.stringify(input) } },
          session
        ),
        ({ content }) => ({ ok: isOk(content), text: content })
      )
  })

const responses: Adapt = (registry) =>
  Effect.succeed({
    tools: OpenAiTools.responsesTools(registry).map(({ description, name, parameters }) => ({
      name,
      description,
      schema: parameters
    })),
    call: (name, input) =>
      Effect.map(
        OpenAiTools.executeResponses(
          registry,
          { call_id: "c1", name, arguments: JSON.stringify(input) },
          session
        ),
        ({ output }) => ({ ok: isOk(output), text: output })
      )
  })

const aiSdk: Adapt = (registry) =>
  Effect.gen(function* () {
    const model = new AiModel(yield* AiSdkTools.make(registry, session))
    return {
      tools: yield* Effect.promise(() => model.offered()),
      call: (name, input) => Effect.promise(() => model.call(name, JSON.stringify(input)))
    }
  })

const mcp: Adapt = (registry) =>
  Effect.gen(function* () {
    const [ours, theirs] = InMemoryTransport.createLinkedPair()
    const closed = yield* McpServer.serve(ours, { registry, session })
    yield* Effect.forkScoped(closed)
    const client = new Client({ name: "test", version: "1" })
    yield* Effect.promise(() => client.connect(theirs))
    const listed = yield* Effect.promise(() => client.listTools())
    return {
      tools: listed.tools.map(({ description = "", inputSchema, name }) => ({
        name,
        description,
        schema: inputSchema
      })),
      call: (name, input) =>
        Effect.map(
          Effect.promise(() => client.callTool({ name, arguments: input as Record<string, unknown> })),
          (result) => {
            const [{ text }] = result.content as [{ readonly text: string }]
            if (result.isError !== true) assert.deepStrictEqual(result.structuredContent, JSON.parse(text))
            return { ok: result.isError !== true, text }
          }
        )
    }
  })

const adapters: ReadonlyArray<readonly [string, Adapt]> = [
  ["chat completions", chat],
  ["responses", responses],
  ["the AI SDK", aiSdk],
  ["MCP", mcp]
]

const broken = Tool.make({
  name: "test__broken",
  description: "has a defect",
  effect: "read_only",
  input: Schema.Struct({ text: Schema.optionalKey(Schema.String) }),
  output: Schema.String,
  execute: () => Effect.die(new Error("a secret of the host"))
})

const registry = Effect.gen(function* () {
  const sandbox = yield* open()
  const table = yield* ProcessTable.make(sandbox)
  return Result.getOrThrow(
    Result.flatMap(
      ToolRegistry.make([
        ...ShellTools.make(sandbox),
        ...ProcessTools.make(sandbox, table),
        ...FileTools.make(sandbox),
        broken,
        toolNamed("mail__send", "not for this session", "external_side_effect")
      ]),
      (all) => all.restrict("coding", { allow: ["test.broken"] })
    )
  )
})

/** Calls in order. Their answers differ only in `duration_ms` and times. */
const script: ReadonlyArray<readonly [name: string, input: unknown]> = [
  ["shell__exec", { command: command({ _tag: "ExitsWith", exitCode: 3 }) }],
  [
    "shell__exec",
    { command: command({ _tag: "Writes", stdout: "ünï ☃ \u0000\u001b", stderr: "e" }), cwd: "." }
  ],
  ["shell__exec", { command: command({ _tag: "Counts", lines: 10_000 }) }],
  ["shell__exec", { command: "x", env: { "A=B": "c" } }],
  ["shell__exec", { command: "x", other: 1 }],
  ["shell__exec", {}],
  ["process__start", { command: command({ _tag: "ExitsWith", exitCode: 0 }) }],
  ["process__wait", { process_id: "proc-404" }],
  ["file__write", { path: "a/b", content: "line\n" }],
  ["file__read", { path: "a/b" }],
  ["file__read", { path: "../b" }],
  ["file__list", {}],
  ["test__broken", {}]
]

const settled = (text: string) =>
  text.replaceAll(/"duration_ms":\d+/gu, "").replaceAll(/"(?:modified|started|ended)_at":"[^"]*"/gu, "")

describe("every adapter", () => {
  it.effect("offers exactly the allowed tools, with the same schemas", () =>
    Effect.gen(function* () {
      const tools = yield* registry
      const expected = tools.offered.map(({ description, inputSchema, name }) => ({
        name,
        description,
        schema: inputSchema
      }))
      assert.strictEqual(expected.length, 10)
      for (const [name, adapt] of adapters) {
        const adapted = yield* adapt(tools)
        assert.deepStrictEqual(adapted.tools, expected as never, name)
        for (const { schema } of adapted.tools) {
          // Model APIs require an object with listed properties and no others.
          const { additionalProperties, properties, type } = schema as Record<string, unknown>
          assert.deepStrictEqual([type, typeof properties, additionalProperties], ["object", "object", false])
        }
      }
    })
  )

  it.effect("gives the same results and the same errors", () =>
    Effect.gen(function* () {
      const said: Array<ReadonlyArray<string>> = []
      for (const [, adapt] of adapters) {
        const { call } = yield* adapt(yield* registry)
        const answers = yield* Effect.forEach(script, ([name, input]) => call(name, input))
        said.push(answers.map(({ ok, text }) => `${ok ? "ok" : "failed"} ${settled(text)}`))
      }
      const [first, ...others] = said
      for (const [index, other] of others.entries()) {
        assert.deepStrictEqual(other, first, adapters[index + 1]![0])
      }
      assert.deepStrictEqual(
        first!.map((text) => /^(?:ok \{|failed [a-z_]+:)/u.exec(text)?.[0]),
        [
          "ok {",
          "ok {",
          "ok {",
          "failed validation:",
          "failed validation:",
          "failed validation:",
          "ok {",
          "failed validation:",
          "ok {",
          "ok {",
          "failed validation:",
          "ok {",
          "failed execution:"
        ]
      )
      assert.notInclude(said.flat().join(), "secret of the host")
    })
  )

  it.effect("hands out copies of the schemas", () =>
    Effect.gen(function* () {
      const tools = yield* registry
      const before = JSON.stringify(tools.offered.map(({ inputSchema }) => inputSchema))
      for (const [, adapt] of adapters) {
        for (const { schema } of (yield* adapt(tools)).tools)
          Object.assign(schema as object, { properties: null })
      }
      assert.strictEqual(JSON.stringify(tools.offered.map(({ inputSchema }) => inputSchema)), before)
    })
  )
})
