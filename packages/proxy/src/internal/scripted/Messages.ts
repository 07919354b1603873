/** Dialect of a scripted model API for `POST /v1/messages`. */
import { type Answer, type Body, type Dialect, type Figures, objectsIn, pieces, textOf } from "./Script.ts"

const blocksOf = (content: unknown): ReadonlyArray<Body> =>
  typeof content === "string" ? [{ type: "text", text: content }] : objectsIn(content)

const said: Dialect["said"] = (body) => {
  const given = objectsIn(body["messages"])
    .filter(({ role }) => role === "user")
    .flatMap(({ content }) => blocksOf(content))
  return {
    tools: objectsIn(body["tools"]).map(({ name }) => String(name)),
    results: given
      .filter(({ type }) => type === "tool_result")
      .map(({ content, is_error }) => (is_error === true ? "error: " : "") + textOf(content)),
    text: String(given.findLast(({ type }) => type === "text")?.["text"] ?? "")
  }
}

const blocks = (answer: Answer, number: number): ReadonlyArray<Body> =>
  "say" in answer
    ? [{ type: "text", text: answer.say }]
    : answer.call.map(({ args, name }, index) => ({
        type: "tool_use",
        id: `toolu_${number}_${index}`,
        name,
        input: args
      }))

/** Streams a block: an empty start, its pieces, its stop. */
const streamed = (block: Body, index: number) => [
  {
    type: "content_block_start",
    index,
    content_block: block["type"] === "text" ? { type: "text", text: "" } : { ...block, input: {} }
  },
  ...(block["type"] === "text"
    ? pieces(String(block["text"])).map((text) => ({ type: "text_delta", text }))
    : pieces(JSON.stringify(block["input"])).map((partial) => ({
        type: "input_json_delta",
        partial_json: partial
      }))
  ).map((delta) => ({ type: "content_block_delta", index, delta })),
  { type: "content_block_stop", index }
]

const usageOf = (figures: Figures) => ({
  input_tokens: figures.inputTokens - (figures.cachedTokens ?? 0),
  cache_read_input_tokens: figures.cachedTokens ?? 0,
  cache_creation_input_tokens: 0,
  output_tokens: figures.outputTokens
})

export const dialect: Dialect = {
  path: "/v1/messages",
  said,
  speak: ({ answer, model, number, usage: figures }) => {
    const content = blocks(answer, number)
    const base = { id: `msg_${number}`, type: "message", role: "assistant", model, stop_sequence: null }
    const stop = "say" in answer ? "end_turn" : "tool_use"
    const usage = usageOf(figures)
    return {
      whole: { ...base, content, stop_reason: stop, usage },
      events: [
        {
          type: "message_start",
          message: { ...base, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } }
        },
        ...content.flatMap(streamed),
        {
          type: "message_delta",
          delta: { stop_reason: stop, stop_sequence: null },
          usage: { output_tokens: figures.outputTokens }
        },
        { type: "message_stop" }
      ]
    }
  }
}
