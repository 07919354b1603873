/** The input that a request reserves is never less than the input that a provider can bill. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Budget from "../src/internal/policy/Budget.ts"
import { imageTokens, ownTokens, windowTokens } from "../src/internal/policy/InputBound.ts"
import type { Api } from "../src/internal/policy/RoutePolicy.ts"
import { fixtures, passed, policyFor, policyOf } from "./Bodies.ts"

const data = "iVBORw0KGgo="
const uri = (mediaType: string) => `data:${mediaType};base64,${data}`
const inline = (media_type: string) => ({ type: "base64", media_type, data })

const boundOf = (api: Api, body: object, policy = policyOf(api)) => {
  const rebuilt = passed(body, policy)
  return { bound: rebuilt.inputTokensMax - ownTokens, bytes: Buffer.byteLength(rebuilt.body) }
}

const chat = (role: string, ...content: ReadonlyArray<object>) => ({
  messages: [{ role, content, ...(role === "tool" ? { tool_call_id: "call" } : {}) }]
})
const said = (...content: ReadonlyArray<object>) => ({ input: [{ role: "user", content }] })
const found = (type: string, ...output: ReadonlyArray<object>) => ({
  input: [{ type, call_id: "call", output }]
})
const claude = (...content: ReadonlyArray<object>) => ({ messages: [{ role: "user", content }] })
const result = (...content: ReadonlyArray<object>) =>
  claude({ type: "tool_result", tool_use_id: "call", content })

const png = { type: "image_url", image_url: { url: uri("image/PNG") } }
const inputImage = { type: "input_image", image_url: uri("image/jpeg") }
const image = { type: "image", source: inline("image/webp") }
const pdf = { type: "document", source: inline("application/pdf") }
const inDocument = { type: "document", source: { type: "content", content: [image] } }

const rows: ReadonlyArray<readonly [Api, object, images: number, file: boolean]> = [
  ["chat_completions", chat("user", { type: "text", text: "hello" }), 0, false],
  ["chat_completions", chat("user", png, png), 2, false],
  ["chat_completions", chat("tool", png), 1, false],
  ["chat_completions", { ...chat("user"), prediction: { type: "content", content: [png] } }, 1, false],
  ["chat_completions", chat("user", { ...png, image_url: { url: uri("application/pdf") } }), 0, true],
  ["chat_completions", chat("user", { ...png, image_url: { url: uri("video/mp4") } }), 0, true],
  ["chat_completions", chat("user", { ...png, image_url: { url: uri("image/tiff") } }), 0, true],
  ["chat_completions", chat("user", { type: "file", file: { file_data: uri("application/pdf") } }), 0, true],
  ["chat_completions", chat("user", { type: "input_audio", input_audio: { data, format: "wav" } }), 0, true],
  ["responses", said(inputImage), 1, false],
  ["responses", said({ type: "input_file", file_data: uri("application/pdf") }, inputImage), 1, true],
  ["responses", found("function_call_output", inputImage), 1, false],
  ["responses", found("custom_tool_call_output", inputImage, inputImage), 2, false],
  ["messages", claude(image), 1, false],
  ["messages", result(image, image), 2, false],
  ["messages", claude(pdf, pdf), 0, true],
  ["messages", result(pdf), 0, true],
  ["messages", claude({ ...image, source: inline("application/pdf") }), 0, true],
  ["messages", claude(inDocument), 1, false],
  ["messages", result(inDocument, image), 2, false],
  [
    "messages",
    claude({ type: "document", source: { type: "text", media_type: "text/plain", data: "a. b." } }),
    0,
    false
  ],
  [
    "messages",
    claude({
      type: "document",
      source: { type: "text", media_type: "text/plain", data: "a. b." },
      citations: { enabled: true }
    }),
    0,
    true
  ],
  // The arguments of a tool are text, whatever they look like.
  ["messages", claude({ type: "tool_use", id: "call", name: "tool", input: { content: [image] } }), 0, false]
]

describe("The bound of a request's input", () => {
  it.each(rows)("%s %j: %d images, a file or sound: %s", (api, body, images, file) => {
    const { bound, bytes } = boundOf(api, body)
    const ofImages = images * (imageTokens - uri("image/jpeg").length)
    const least = bytes + ofImages + (file ? windowTokens : 0)
    assert.isAtLeast(bound, least)
    assert.isAtMost(bound, least + images * uri("image/jpeg").length)
  })

  it("counts every image and file of every allowed shape", () => {
    /** Returns all base64 data in a value. */
    const dataIn = (value: unknown): ReadonlyArray<string> => {
      if (typeof value === "string") return value.startsWith("data:") ? [value] : []
      if (typeof value !== "object" || value === null) return []
      const { data, format, media_type, type } = value as Record<string, unknown>
      if (type === "base64" || format !== undefined)
        if (typeof data === "string") return [`data:${String(media_type ?? "audio/x")};base64,${data}`]
      return Object.values(value).flatMap(dataIn)
    }
    // Embeddings read neither images nor files.
    const shapes = fixtures.filter(({ api, name }) => name.startsWith("every-shape") && api !== "embeddings")
    let images = 0
    for (const one of shapes) {
      const conversation = one.api === "responses" ? "input" : "messages"
      for (const message of one.body[conversation])
        for (const field of ["content", "output"])
          for (const part of [message[field]].flat()) {
            const found = dataIn(part)
            if (found.length === 0) continue
            const pictures = found.filter((uri) => uri.startsWith("data:image/")).length
            images += pictures
            const body = { model: one.body["model"], [conversation]: [{ ...message, [field]: [part] }] }
            const { bound } = boundOf(one.api, body, policyFor(one))
            const least = pictures * imageTokens + (found.length > pictures ? windowTokens : 0)
            assert.isAtLeast(bound, least, JSON.stringify(part))
          }
    }
    assert.isAtLeast(images, 3)
  })

  it("counts a tool's definition once more for each reference to it", () => {
    const tool = { name: "big", description: "x".repeat(10_000), input_schema: {} }
    const reference = { type: "tool_reference", tool_name: "big" }
    const { bound, bytes } = boundOf("messages", { ...result(reference, reference), tools: [tool] })
    assert.isAtLeast(bound, bytes + 20_000)
  })

  it("equals the bytes of an agent's request that has only text", () => {
    const texts = fixtures.filter(({ body }) => !/base64|input_audio|file_data/u.test(JSON.stringify(body)))
    assert.isAtLeast(texts.length, 8)
    for (const one of texts) {
      const { bound, bytes } = boundOf(one.api, one.body, policyFor(one))
      assert.strictEqual(bound, bytes)
      const of = Budget.make(
        { inputTokensMax: 1000, onExhausted: "refuse" },
        { defaults: { concurrentCallsMax: 1, requestsPerSecondMax: 1 } }
      )
      const first = of.begin({ model: "m", requestBytes: bytes, inputTokensMax: bound })
      assert.isFalse("exhaustion" in first, "a first call passes, whatever it reserves")
    }
  })

  const Part = Schema.Union([
    Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
    Schema.Struct({ type: Schema.Literal("image") }),
    Schema.Struct({ type: Schema.Literal("document") })
  ])
  const Step = Schema.Struct({
    content: Schema.Array(Part),
    nested: Schema.Boolean,
    /** Open calls that end before this one begins, and whether their usage is reported. */
    ends: Schema.Array(Schema.Struct({ which: Schema.Int, heard: Schema.Boolean }))
  })

  /** Returns the highest possible bill: a token for every byte of text, and the published maxima for the rest. */
  const billOf = (content: (typeof Step.Type)["content"]): number =>
    content.some(({ type }) => type === "document")
      ? windowTokens
      : content.reduce(
          (sum, part) => sum + (part.type === "text" ? Buffer.byteLength(part.text) : imageTokens),
          ownTokens
        )

  it.prop(
    "covers the bill of calls in any order, concurrent or not, completed or aborted",
    [Schema.Int, Schema.Array(Step)],
    ([max, steps]) => {
      const inputTokensMax = 1 + (Math.abs(max) % 300_000)
      const of = Budget.make(
        { inputTokensMax, onExhausted: "refuse" },
        { defaults: { concurrentCallsMax: 100, requestsPerSecondMax: 100 } }
      )
      const open: Array<{ readonly ticket: Budget.Ticket; readonly bill: number }> = []
      let billed = 0
      let reservedMax = 0
      const end = (which: number, heard: boolean) => {
        const [call] = open.splice(Math.abs(which) % open.length, 1)
        billed += call!.bill
        of.end(call!.ticket, {
          responseBytes: 0,
          mayHaveRun: true,
          ...(heard ? { usage: { inputTokens: call!.bill, outputTokens: 1 } } : {})
        })
      }
      for (const { content, ends, nested } of steps) {
        for (const { heard, which } of ends) if (open.length > 0) end(which, heard)
        const parts = content.map((part) =>
          part.type === "text" ? part : part.type === "image" ? image : pdf
        )
        const { body, inputTokensMax: bound } = passed(
          nested ? result(...parts) : claude(...parts),
          policyOf("messages")
        )
        const ticket = of.begin({
          model: "m",
          requestBytes: Buffer.byteLength(body),
          inputTokensMax: bound,
          outputTokensMax: 1
        })
        if ("exhaustion" in ticket) continue
        reservedMax = Math.max(reservedMax, ticket.reserved.inputTokens)
        open.push({ ticket, bill: billOf(content) })
      }
      while (open.length > 0) end(0, false)
      assert.isAtLeast(of.total().inputTokens, billed)
      assert.isAtMost(billed, inputTokensMax + reservedMax)
    },
    { arbitrary: { runs: 500, seed: "input-bound" } }
  )
})
