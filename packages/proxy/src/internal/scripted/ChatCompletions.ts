/** Dialect of a scripted model API for `POST /v1/chat/completions`. */
import { type Answer, type Body, type Dialect, type Figures, objectsIn, pieces, textOf } from "./Script.ts"

const nameOf = (tool: Body): string =>
  String((tool["function"] as Body | undefined)?.["name"] ?? tool["name"])

const said: Dialect["said"] = (body) => {
  const messages = objectsIn(body["messages"])
  return {
    tools: objectsIn(body["tools"]).map(nameOf),
    results: messages.filter(({ role }) => role === "tool").map(({ content }) => textOf(content)),
    text: textOf(messages.findLast(({ role }) => role === "user")?.["content"])
  }
}

const callsOf = (answer: Answer, number: number) =>
  "say" in answer
    ? []
    : answer.call.map(({ args, name }, index) => ({
        id: `call_${number}_${index}`,
        type: "function",
        function: { name, arguments: JSON.stringify(args) }
      }))

/** Streams a call: its name without arguments, then the arguments in pieces. */
const streamed = (call: ReturnType<typeof callsOf>[number], index: number) => [
  { tool_calls: [{ index, ...call, function: { name: call.function.name, arguments: "" } }] },
  ...pieces(call.function.arguments).map((text) => ({
    tool_calls: [{ index, function: { arguments: text } }]
  }))
]

const usageOf = (figures: Figures) => ({
  prompt_tokens: figures.inputTokens,
  completion_tokens: figures.outputTokens,
  total_tokens: figures.inputTokens + figures.outputTokens,
  ...(figures.cachedTokens === undefined
    ? {}
    : { prompt_tokens_details: { cached_tokens: figures.cachedTokens } })
})

export const dialect: Dialect = {
  path: "/v1/chat/completions",
  said,
  speak: ({ answer, body, model, number, usage: figures }) => {
    const base = { id: `chatcmpl-${number}`, created: 1, model }
    const calls = callsOf(answer, number)
    const finish = "say" in answer ? "stop" : "tool_calls"
    const usage = usageOf(figures)
    const message =
      "say" in answer
        ? { role: "assistant", content: answer.say }
        : { role: "assistant", content: null, tool_calls: calls }
    const chunk = (delta: unknown, finish_reason: string | null = null) => ({
      ...base,
      object: "chat.completion.chunk",
      choices: [{ index: 0, delta, finish_reason }]
    })
    const deltas =
      "say" in answer ? pieces(answer.say).map((content) => ({ content })) : calls.flatMap(streamed)
    const wantsUsage = (body["stream_options"] as Body | undefined)?.["include_usage"] === true
    return {
      whole: {
        ...base,
        object: "chat.completion",
        choices: [{ index: 0, finish_reason: finish, message }],
        usage
      },
      events: [
        chunk({ role: "assistant", content: "" }),
        ...deltas.map((delta) => chunk(delta)),
        chunk({}, finish),
        ...(wantsUsage ? [{ ...base, object: "chat.completion.chunk", choices: [], usage }] : []),
        "[DONE]"
      ]
    }
  }
}
