/** A model's calls over OpenAI's APIs: every call gets an answer that the model can act upon. */
import * as OpenAiTools from "@cogni/sandbox-loop/OpenAiTools"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources/chat/completions"
import type { ResponseInputItem, Tool } from "openai/resources/responses/responses"
import { session, toolNamed } from "./ToolWorld.ts"

const registry = Result.getOrThrow(
  Result.flatMap(ToolRegistry.make([toolNamed("file__read", "called")]), (all) => all.restrict("minimal"))
)

const answer = (given: string, name = "file__read") =>
  Effect.map(
    OpenAiTools.execute(registry, { id: "call_1", function: { name, arguments: given } }, session),
    ({ content }) => content
  )

describe("tools for OpenAI's APIs", () => {
  it("match the types of the official client", () => {
    const chat: Array<ChatCompletionTool> = OpenAiTools.chatTools(registry)
    const responses: Array<Tool> = OpenAiTools.responsesTools(registry)
    assert.deepStrictEqual(chat, [
      {
        type: "function",
        function: {
          name: "file__read",
          description: "called",
          strict: false,
          parameters: {
            type: "object",
            properties: { text: { type: "string" } },
            additionalProperties: false
          }
        }
      }
    ] as never)
    assert.containSubset(responses, [{ type: "function", name: "file__read", strict: false }])
  })

  it.effect("answers match the types of the official client", () =>
    Effect.gen(function* () {
      const message: ChatCompletionMessageParam = yield* OpenAiTools.execute(
        registry,
        { id: "call_1", function: { name: "file__read", arguments: '{"text":"x"}' } },
        session
      )
      const item: ResponseInputItem = yield* OpenAiTools.executeResponses(
        registry,
        { call_id: "call_2", name: "file__read", arguments: '{"text":"x"}' },
        session
      )
      const content = '{"mark":"called","text":"x"}'
      assert.deepStrictEqual(message, { role: "tool", tool_call_id: "call_1", content })
      assert.deepStrictEqual(item, { type: "function_call_output", call_id: "call_2", output: content })
    })
  )

  it.effect.each([
    ["{", /^invalid_json: the arguments are not JSON \(.+\)\. Send one object/u],
    ["{'text': 'x'}", /^invalid_json: /u],
    ['{"text":"x"}{"text":"y"}', /^invalid_json: /u],
    ["[]", /^validation: /u],
    ['["x"]', /^validation: /u],
    ["null", /^validation: /u],
    ['"x"', /^validation: /u],
    ["7", /^validation: /u],
    ['{"text":7}', /^validation: text: /u],
    ['{"text":"x","more":1}', /^validation: more: /u],
    ['{"__proto__":{"text":"x"}}', /^validation: __proto__: /u],
    ['{"constructor":{"prototype":{"text":"x"}}}', /^validation: constructor: /u],
    [`{"text":${"[".repeat(5000)}`, /^invalid_json: /u],
    [`${"[".repeat(100_000)}${"]".repeat(100_000)}`, /^(?:validation|invalid_json): /u]
  ] as const)("reports invalid arguments to the model: %s", ([given, expected]) =>
    Effect.gen(function* () {
      const content = yield* answer(given)
      assert.match(content, expected)
      assert.isAtMost(content.length, 1500)
      assert.notProperty(Object.prototype, "text")
    })
  )

  it.effect("treats missing arguments as an empty object", () =>
    Effect.gen(function* () {
      for (const given of ["", "  \n", "{}"]) assert.strictEqual(yield* answer(given), '{"mark":"called"}')
    })
  )

  it.effect("reports an unknown or forbidden tool", () =>
    Effect.gen(function* () {
      for (const name of ["shell__exec", "__proto__", "", "x".repeat(10_000)]) {
        const content = yield* answer("{}", name)
        assert.match(content, /^policy_denied: the tool ".*" may not be called\. Allowed tools: file__read$/u)
        assert.isAtMost(content.length, 500)
      }
    })
  )

  it.effect.prop(
    "answers any arguments",
    [Schema.String],
    ([given]) =>
      Effect.gen(function* () {
        assert.match(yield* answer(given), /^(?:\{|invalid_json: |validation: )/u)
      }),
    { arbitrary: { runs: 300, seed: "arguments" } }
  )
})
