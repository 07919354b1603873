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

describe("argument schema of a tool", () => {
  it("is an object with its properties", () => {
    assert.deepStrictEqual(told(Schema.Struct({ a: Schema.String, b: Schema.optionalKey(Schema.Boolean) })), {
      type: "object",
      properties: { a: { type: "string" }, b: { type: "boolean" } },
      required: ["a"],
      additionalProperties: false
    })
  })

  it("has empty properties without fields, because some APIs require them", () => {
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

  it("includes the definitions that it refers to", () => {
    const schema = told(Schema.Struct({ a: Inner, b: Inner }))
    assert.deepStrictEqual(Object.keys(schema["$defs"] as object), ["Inner"])
  })
})
