import { assert, describe, expect, it } from "@effect/vitest"
import { Schema } from "effect"
import * as ChatCompletions from "../src/internal/policy/apis/ChatCompletions.ts"
import * as Embeddings from "../src/internal/policy/apis/Embeddings.ts"
import * as Messages from "../src/internal/policy/apis/Messages.ts"
import * as Responses from "../src/internal/policy/apis/Responses.ts"
import { fixture, type Json } from "./Bodies.ts"

const bodies: Readonly<Record<string, Schema.Top>> = {
  chat_completions: ChatCompletions.Body,
  responses: Responses.Body,
  messages: Messages.Body,
  count_tokens: Messages.CountBody,
  embeddings: Embeddings.Body
}

const matches = (schema: Json, value: any): boolean => {
  if (schema["anyOf"] !== undefined) return schema["anyOf"].some((one: Json) => matches(one, value))
  switch (schema["type"]) {
    case undefined:
      return true
    case "null":
      return value === null
    case "array":
      return Array.isArray(value)
    case "object":
      return (
        typeof value === "object" &&
        value !== null &&
        !Array.isArray(value) &&
        (schema["required"] ?? []).every((name: string) => Object.hasOwn(value, name)) &&
        ["type", "role"].every(
          (name) => value[name] === undefined || matches(schema["properties"]?.[name] ?? {}, value[name])
        )
      )
    case "integer":
      return Number.isInteger(value)
    default:
      return typeof value === schema["type"] && (schema["enum"]?.includes(value) ?? true)
  }
}

/** Structs by their text, with their names and those that a fixture covers. A repeated struct is listed once. */
type Structs = Map<string, { readonly names: ReadonlyArray<string>; readonly covered: Set<string> }>

const headingOf = ({ properties }: Json, name: string): string => {
  const tag = ["type", "role"].find((one) => properties[one]?.enum !== undefined)
  return tag === undefined ? name : `${name}<${properties[tag].enum.join("|")}>`
}

const expressionOf = (schema: Json, name: string, values: ReadonlyArray<any>, structs: Structs): string => {
  const here = values.filter((value) => matches(schema, value))
  const alternatives: ReadonlyArray<Json> | undefined = schema["anyOf"]
  if (alternatives !== undefined)
    return alternatives.map((one) => expressionOf(one, name, here, structs)).join(" | ")
  if (schema["type"] === "array")
    return `[${expressionOf(schema["items"] ?? {}, name, here.flat(), structs)}]`
  if (schema["type"] !== "object") {
    const kind = (schema["enum"]?.map((one: string) => JSON.stringify(one)).join(" | ") ??
      schema["type"] ??
      "free") as string
    return schema["pattern"] === undefined ? kind : `${kind} ${schema["pattern"]}`
  }
  if (schema["properties"] === undefined)
    return `{ [name]: ${schema["additionalProperties"]?.type ?? "free"} }`
  const heading = headingOf(schema, name)
  const names = Object.keys(schema["properties"])
  const valuesAt = (one: string) => here.flatMap((value) => (Object.hasOwn(value, one) ? [value[one]] : []))
  const lines = names.map((one) => {
    const isOptional = schema["required"]?.includes(one) !== true
    return `  ${one}${isOptional ? "?" : ""}: ${expressionOf(schema["properties"][one], one, valuesAt(one), structs)}`
  })
  const text = [heading, ...lines].join("\n")
  const struct = structs.get(text) ?? { names, covered: new Set() }
  structs.set(text, struct)
  for (const one of names) if (valuesAt(one).length > 0) struct.covered.add(one)
  return heading
}

describe("the allowlist", () => {
  for (const [api, body] of Object.entries(bodies)) {
    const structs: Structs = new Map()
    const { schema } = Schema.toJsonSchemaDocument(body)
    const { also = [], body: written } = fixture(`every-shape.${api}`)
    expressionOf(schema as Json, "body", [written, ...also.map((one) => ({ ...written, ...one }))], structs)

    it(`the allowlist of ${api} matches its snapshot`, async () => {
      // After an intended change: pnpm vitest run packages/proxy/test/RequestBodyAllowlist.test.ts -u
      await expect(`${[...structs.keys()].toReversed().join("\n\n")}\n`).toMatchFileSnapshot(
        `fixtures/allowlist.${api}.txt`
      )
    })

    it(`the allowlist of ${api} is covered by the fixture by hand`, () => {
      const missing = [...structs].flatMap(([text, { covered, names }]) =>
        names.filter((name) => !covered.has(name)).map((name) => `${text.split("\n")[0]}.${name}`)
      )
      assert.deepStrictEqual(missing, [])
    })
  }
})
