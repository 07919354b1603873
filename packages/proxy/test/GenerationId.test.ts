/** The ID that an upstream gave a call: where it is read from, and which texts are ignored. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as GenerationId from "../src/internal/policy/GenerationId.ts"

const events = "text/event-stream; charset=utf-8"

const read = (
  text: string,
  { contentType = "application/json", header = undefined as unknown, pieceBytes = Infinity } = {}
) => {
  const reader = GenerationId.makeReader({ contentType, header })
  const bytes = Buffer.from(text)
  for (let from = 0; from < bytes.length; from += pieceBytes)
    reader.push(bytes.subarray(from, from + pieceBytes))
  return reader.read()
}

const stream = (...bodies: ReadonlyArray<unknown>) =>
  `: OPENROUTER PROCESSING\n\n${bodies.map((body) => `event: x\ndata: ${JSON.stringify(body)}\n\n`).join("")}`

describe("GenerationId", () => {
  it.each<[string, string, string]>([
    ["an answer", "application/json", JSON.stringify({ choices: [{ id: "gen-no" }], id: "gen-1" })],
    ["a chat's first chunk", events, stream({ id: "gen-1", choices: [] }, { id: "gen-2" })],
    ["the message that a stream starts", events, stream({ type: "ping" }, { message: { id: "gen-1" } })],
    ["the response that a stream creates", events, stream({ response: { id: "gen-1" } })],
    ["a stream that breaks off", events, `${stream({ id: "gen-1" })}data: {"id":"ge`]
  ])("reads the ID from %s, in pieces of any size", (_, contentType, text) => {
    for (const pieceBytes of [1, 7, Infinity])
      assert.strictEqual(read(text, { contentType, pieceBytes }), "gen-1")
  })

  it("reads the ID from the header, whatever the answer says", () => {
    for (const contentType of ["application/json", events])
      assert.strictEqual(read('{"id":"gen-2"}', { contentType, header: "gen-1" }), "gen-1")
    assert.strictEqual(read('{"id":"gen-2"}', { header: "an error\u0000" }), "gen-2")
  })

  it.each([
    ["of another provider", "chatcmpl-1"],
    ["that is too long", `gen-${"x".repeat(129)}`],
    ["with other characters", "gen-1&id=gen-2"],
    ["that is a number", 7],
    ["that is an object", { id: "gen-1" }]
  ])("ignores an ID %s", (_, id) => {
    assert.isUndefined(read(JSON.stringify({ id })))
    assert.isUndefined(read(stream({ id }, { id }), { contentType: events }))
    assert.isUndefined(GenerationId.valid(id))
  })

  it("gives up after the first events of a stream", () => {
    const others = Array.from({ length: 8 }, () => ({ choices: [] }))
    assert.isUndefined(read(stream(...others, { id: "gen-1" }), { contentType: events }))
  })

  it.prop("reads any bytes", [Schema.Uint8Array, Schema.String], ([bytes, text]) => {
    for (const contentType of ["application/json", events]) {
      const reader = GenerationId.makeReader({ contentType, header: text })
      reader.push(bytes)
      reader.push(Buffer.from(`data: ${text}\n\n`))
      const id = reader.read()
      if (id !== undefined) assert.strictEqual(GenerationId.valid(id), id)
    }
  })
})
