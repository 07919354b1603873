/** `POST /v1/chat/completions`, as a script speaks it. */
import {
  type Body,
  type Dialect,
  type Figures,
  pieces,
  type Reply,
  sendEvents,
  sendJson,
  textOf
} from "./Script.ts"

const nameOf = (tool: Body): string =>
  String((tool["function"] as Body | undefined)?.["name"] ?? tool["name"])

const asked: Dialect["asked"] = (body) => {
  const messages = (body["messages"] ?? []) as ReadonlyArray<Body>
  return {
    tools: ((body["tools"] ?? []) as ReadonlyArray<Body>).map(nameOf),
    results: messages.filter(({ role }) => role === "tool").map(({ content }) => textOf(content)),
    text: textOf(messages.findLast(({ role }) => role === "user")?.["content"])
  }
}

const callsOf = (reply: Reply, number: number) =>
  "say" in reply
    ? []
    : reply.call.map(({ args, name }, index) => ({
        id: `call_${number}_${index}`,
        type: "function",
        function: { name, arguments: JSON.stringify(args) }
      }))

/** A call as it is streamed: its name with no arguments, then these in pieces. */
const streamed = (call: ReturnType<typeof callsOf>[number], index: number) => [
  { tool_calls: [{ index, ...call, function: { name: call.function.name, arguments: "" } }] },
  ...pieces(call.function.arguments).map((text) => ({
    tool_calls: [{ index, function: { arguments: text } }]
  }))
]

const usageOf = (figures: Figures) => ({
  prompt_tokens: figures.inputTokens,
  completion_tokens: figures.outputTokens,
  total_tokens: figures.inputTokens + figures.outputTokens
})

export const dialect: Dialect = {
  path: "/v1/chat/completions",
  asked,
  answer: (response, body, reply, figures, number) => {
    const base = { id: `chatcmpl-${number}`, created: 1, model: body["model"] }
    const calls = callsOf(reply, number)
    const finish = "say" in reply ? "stop" : "tool_calls"
    const usage = usageOf(figures)
    if (body["stream"] !== true) {
      const message =
        "say" in reply
          ? { role: "assistant", content: reply.say }
          : { role: "assistant", content: null, tool_calls: calls }
      return sendJson(response, {
        ...base,
        object: "chat.completion",
        choices: [{ index: 0, finish_reason: finish, message }],
        usage
      })
    }
    const chunk = (delta: unknown, finish_reason: string | null = null) => ({
      ...base,
      object: "chat.completion.chunk",
      choices: [{ index: 0, delta, finish_reason }]
    })
    const deltas =
      "say" in reply ? pieces(reply.say).map((content) => ({ content })) : calls.flatMap(streamed)
    const wantsUsage = (body["stream_options"] as Body | undefined)?.["include_usage"] === true
    return sendEvents(
      response,
      [
        chunk({ role: "assistant", content: "" }),
        ...deltas.map((delta) => chunk(delta)),
        chunk({}, finish),
        ...(wantsUsage ? [{ ...base, object: "chat.completion.chunk", choices: [], usage }] : []),
        "[DONE]"
      ].map((event) => [undefined, event] as const)
    )
  }
}
