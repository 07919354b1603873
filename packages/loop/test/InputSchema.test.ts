import * as Tool from "@cogni/sandbox-loop/Tool"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"

const Inner = Schema.Struct({ name: Schema.String }).annotate({ identifier: "Inner" })

const told = <I, IE>(input: Schema.Codec<I, IE>) =>
  Tool.make({
    name: "test__tool",
    description: "",
    effect: "read_only",
    input,
    output: Schema.Null,
    execute: () => Effect.succeed(null)
  }).inputSchema

describe("the arguments of a tool, as a model is told them", () => {
  it("are an object with its properties", () => {
    assert.deepStrictEqual(told(Schema.Struct({ a: Schema.String, b: Schema.optionalKey(Schema.Boolean) })), {
      type: "object",
      properties: { a: { type: "string" }, b: { type: "boolean" } },
      required: ["a"],
      additionalProperties: false
    })
  })

  it("are an object with properties also where there are none: not every API takes another", () => {
    assert.deepStrictEqual(told(Schema.Struct({})), {
      type: "object",
      properties: {},
      additionalProperties: false
    })
    assert.deepStrictEqual(told(Schema.Struct({}).annotate({ description: "nothing" })), {
      type: "object",
      description: "nothing",
      properties: {},
      additionalProperties: false
    })
  })

  it("bring along what they refer to", () => {
    const schema = told(Schema.Struct({ a: Inner, b: Inner }))
    assert.deepStrictEqual(Object.keys(schema["$defs"] as object), ["Inner"])
  })
})
