/**
 * A model API as the official clients know it: chat completions, responses and messages, streamed or not, with tools.
 *
 * Whoever offers a tool and has not used it yet is asked to; everybody else is answered. No model.
 */
import { Effect } from "effect"
import { createServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

export interface ModelApi {
  readonly url: string
  /** Bodies, as they arrived. */
  readonly received: ReadonlyArray<Readonly<Record<string, unknown>>>
}

type Body = Readonly<Record<string, unknown>>

const usage = { prompt_tokens: 11, completion_tokens: 5, total_tokens: 16 }
const words = ["It ", "is ", "sunny ", "in ", "Oslo."]
const args = '{"city":"Oslo"}'

const json = (response: ServerResponse, value: unknown) =>
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value))

const events = (
  response: ServerResponse,
  all: ReadonlyArray<readonly [name: string | undefined, data: unknown]>
) => {
  response.writeHead(200, { "content-type": "text/event-stream" })
  for (const [name, data] of all) {
    response.write(
      `${name === undefined ? "" : `event: ${name}\n`}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`
    )
  }
  response.end()
}

const chat = (response: ServerResponse, body: Body) => {
  const messages = body["messages"] as ReadonlyArray<Body>
  const asks = body["tools"] !== undefined && !messages.some(({ role }) => role === "tool")
  const base = { id: "chatcmpl-1", created: 1, model: body["model"] }
  const call = { id: "call_1", type: "function", function: { name: "weather", arguments: args } }
  if (body["stream"] !== true) {
    return json(response, {
      ...base,
      object: "chat.completion",
      choices: [
        {
          index: 0,
          finish_reason: asks ? "tool_calls" : "stop",
          message: asks
            ? { role: "assistant", content: null, tool_calls: [call] }
            : { role: "assistant", content: words.join("") }
        }
      ],
      usage
    })
  }
  const chunk = (delta: unknown, finish: string | null = null) =>
    [
      undefined,
      { ...base, object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason: finish }] }
    ] as const
  return events(response, [
    chunk({ role: "assistant", content: "" }),
    ...(asks
      ? [chunk({ tool_calls: [{ index: 0, ...call }] }), chunk({}, "tool_calls")]
      : [...words.map((content) => chunk({ content })), chunk({}, "stop")]),
    ...((body["stream_options"] as Body | undefined)?.["include_usage"] === true
      ? [[undefined, { ...base, object: "chat.completion.chunk", choices: [], usage }] as const]
      : []),
    [undefined, "[DONE]"]
  ])
}

const responses = (response: ServerResponse, body: Body) => {
  const items = body["input"]
  const asks =
    body["tools"] !== undefined &&
    !(Array.isArray(items) && items.some((item: Body) => item["type"] === "function_call_output"))
  const output = asks
    ? [
        {
          type: "function_call",
          id: "fc_1",
          call_id: "call_1",
          name: "weather",
          arguments: args,
          status: "completed"
        }
      ]
    : [
        {
          type: "message",
          id: "msg_1",
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: words.join(""), annotations: [] }]
        }
      ]
  const whole = {
    id: "resp_1",
    object: "response",
    created_at: 1,
    status: "completed",
    model: body["model"],
    output,
    parallel_tool_calls: true,
    tools: [],
    usage: {
      input_tokens: 11,
      output_tokens: 5,
      total_tokens: 16,
      input_tokens_details: { cached_tokens: 3 },
      output_tokens_details: { reasoning_tokens: 0 }
    }
  }
  if (body["stream"] !== true) return json(response, whole)
  let sequence = 0
  const event = (type: string, fields: object) =>
    [type, { type, sequence_number: sequence++, ...fields }] as const
  return events(response, [
    event("response.created", { response: { ...whole, status: "in_progress", output: [], usage: null } }),
    event("response.output_item.added", {
      output_index: 0,
      item: asks ? { ...output[0], arguments: "" } : { ...output[0], content: [] }
    }),
    ...(asks
      ? [
          event("response.function_call_arguments.done", {
            output_index: 0,
            item_id: "fc_1",
            arguments: args
          })
        ]
      : [
          event("response.content_part.added", {
            output_index: 0,
            content_index: 0,
            item_id: "msg_1",
            part: { type: "output_text", text: "", annotations: [] }
          }),
          ...words.map((delta) =>
            event("response.output_text.delta", {
              output_index: 0,
              content_index: 0,
              item_id: "msg_1",
              delta
            })
          )
        ]),
    event("response.output_item.done", { output_index: 0, item: output[0] }),
    event("response.completed", { response: whole })
  ])
}

const messages = (response: ServerResponse, body: Body) => {
  const turns = body["messages"] as ReadonlyArray<Body>
  const asks =
    body["tools"] !== undefined &&
    !turns.some(
      ({ content }) =>
        Array.isArray(content) && content.some((block: Body) => block["type"] === "tool_result")
    )
  const block = asks
    ? { type: "tool_use", id: "toolu_1", name: "weather", input: { city: "Oslo" } }
    : { type: "text", text: words.join("") }
  const stop = asks ? "tool_use" : "end_turn"
  const base = { id: "msg_1", type: "message", role: "assistant", model: body["model"], stop_sequence: null }
  const figures = {
    input_tokens: 8,
    cache_read_input_tokens: 3,
    cache_creation_input_tokens: 0,
    output_tokens: 5
  }
  if (body["stream"] !== true)
    return json(response, { ...base, content: [block], stop_reason: stop, usage: figures })
  return events(response, [
    [
      "message_start",
      {
        type: "message_start",
        message: { ...base, content: [], stop_reason: null, usage: { ...figures, output_tokens: 1 } }
      }
    ],
    [
      "content_block_start",
      {
        type: "content_block_start",
        index: 0,
        content_block: asks ? { ...block, input: {} } : { type: "text", text: "" }
      }
    ],
    ...(asks
      ? [{ type: "input_json_delta", partial_json: args }]
      : words.map((text) => ({ type: "text_delta", text }))
    ).map((delta) => ["content_block_delta", { type: "content_block_delta", index: 0, delta }] as const),
    ["content_block_stop", { type: "content_block_stop", index: 0 }],
    [
      "message_delta",
      {
        type: "message_delta",
        delta: { stop_reason: stop, stop_sequence: null },
        usage: { output_tokens: 5 }
      }
    ],
    ["message_stop", { type: "message_stop" }]
  ])
}

/** On a free port of the loopback interface, for as long as the scope. */
export const acquire = Effect.gen(function* () {
  const received: Array<Body> = []
  const answer = (path: string, body: Body, response: ServerResponse) => {
    switch (path) {
      case "/v1/chat/completions":
        return chat(response, body)
      case "/v1/responses":
        return responses(response, body)
      case "/v1/messages":
        return messages(response, body)
      case "/v1/messages/count_tokens":
        return json(response, { input_tokens: 11 })
      default:
        return response.writeHead(404).end()
    }
  }
  const server = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const made = createServer((request, response) => {
        const pieces: Array<Buffer> = []
        request.on("data", (piece: Buffer) => pieces.push(piece))
        request.on("end", () => {
          const body: Body = JSON.parse(Buffer.concat(pieces).toString("utf8"))
          received.push(body)
          answer((request.url ?? "").split("?")[0]!, body, response)
        })
      }).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
    }),
    (made) =>
      Effect.callback<void>((resume) => {
        made.close(() => resume(Effect.void))
        made.closeAllConnections()
      })
  )
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, received } satisfies ModelApi
})
