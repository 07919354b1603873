/** Dialect of a scripted model API for `POST /v1/responses`. A tool that takes free text gets its argument `input`. */
import { type Body, type Call, type Dialect, objectsIn, pieces, type Spoken, textOf } from "./Script.ts"

const listOf = (value: unknown): ReadonlyArray<Body> =>
  typeof value === "string" ? [{ type: "message", role: "user", content: value }] : objectsIn(value)

/** Returns the tools of the request and those in items of its conversation, with or without a namespace. */
const toolsOf = (body: Body): ReadonlyArray<Body> =>
  [
    ...objectsIn(body["tools"]),
    ...listOf(body["input"])
      .filter(({ type }) => type === "additional_tools")
      .flatMap(({ tools }) => objectsIn(tools))
  ]
    .flatMap((tool) =>
      tool["type"] === "namespace"
        ? objectsIn(tool["tools"]).map((inner) => ({ ...inner, namespace: tool["name"] }))
        : [tool]
    )
    .filter(({ name }) => typeof name === "string")

const said: Dialect["said"] = (body) => {
  const items = listOf(body["input"])
  return {
    tools: toolsOf(body).map(({ name }) => String(name)),
    results: items
      .filter(({ type }) => type === "function_call_output" || type === "custom_tool_call_output")
      .map(({ output }) => textOf(output)),
    text: textOf(items.findLast(({ role }) => role === undefined || role === "user")?.["content"])
  }
}

const callItem = (body: Body, { args, name }: Call, id: string): Body => {
  const tool: Body = toolsOf(body).find((one) => one["name"] === name) ?? {}
  const own = {
    call_id: `call_${id}`,
    name,
    status: "completed",
    ...(tool["namespace"] === undefined ? {} : { namespace: tool["namespace"] })
  }
  return tool["type"] === "custom"
    ? { type: "custom_tool_call", id: `ctc_${id}`, ...own, input: String(args["input"]) }
    : { type: "function_call", id: `fc_${id}`, ...own, arguments: JSON.stringify(args) }
}

const outputOf = ({ answer, body, number }: Spoken): ReadonlyArray<Body> =>
  "say" in answer
    ? [
        {
          type: "message",
          id: `msg_${number}`,
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: answer.say, annotations: [] }]
        }
      ]
    : answer.call.map((call, index) => callItem(body, call, `${number}_${index}`))

const usageOf = ({ cachedTokens = 0, inputTokens, outputTokens }: Spoken["usage"]) => ({
  input_tokens: inputTokens,
  output_tokens: outputTokens,
  total_tokens: inputTokens + outputTokens,
  input_tokens_details: { cached_tokens: cachedTokens },
  output_tokens_details: { reasoning_tokens: 0 }
})

/** Streams an item: its start, its pieces, its end. */
const streamed = (item: Body, index: number): ReadonlyArray<Body> => {
  const at = { output_index: index, item_id: item["id"] }
  const done = { type: "response.output_item.done", output_index: index, item }
  const begun = (empty: Body) => ({
    type: "response.output_item.added",
    output_index: index,
    item: { ...item, ...empty, status: "in_progress" }
  })
  if (item["type"] !== "message") {
    const field = item["type"] === "function_call" ? "arguments" : "input"
    const whole = { type: `response.${String(item["type"])}_${field}.done`, ...at, [field]: item[field] }
    return [begun({ [field]: "" }), whole, done]
  }
  const part = (item["content"] as ReadonlyArray<Body>)[0]!
  const inside = { ...at, content_index: 0 }
  const deltas = pieces(String(part["text"]))
  return [
    begun({ content: [] }),
    { type: "response.content_part.added", ...inside, part: { ...part, text: "" } },
    ...deltas.map((delta) => ({ type: "response.output_text.delta", ...inside, delta })),
    { type: "response.output_text.done", ...inside, text: part["text"] },
    { type: "response.content_part.done", ...inside, part },
    done
  ]
}

export const dialect: Dialect = {
  path: "/v1/responses",
  said,
  speak: (spoken) => {
    const { model, number, usage } = spoken
    const output = outputOf(spoken)
    const whole = {
      id: `resp_${number}`,
      object: "response",
      created_at: 1,
      status: "completed",
      model,
      output,
      parallel_tool_calls: true,
      tools: [],
      usage: usageOf(usage)
    }
    const begun = { ...whole, status: "in_progress", output: [], usage: null }
    const events: ReadonlyArray<Body> = [
      { type: "response.created", response: begun },
      ...output.flatMap(streamed),
      { type: "response.completed", response: whole }
    ]
    return { whole, events: events.map((event, index) => ({ ...event, sequence_number: index })) }
  }
}
