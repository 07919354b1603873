/**
 * A model API with no model behind it: for the first run, and for tests.
 *
 * Deterministic, compatible with OpenAI's and Anthropic's paths, streaming and not, and labelled as what it is in
 * every answer. It is never chosen silently where a real upstream is configured. It remembers what it received, so
 * that one can see what was put in on the way out.
 */
import { type Effect, Schema, type Scope } from "effect"
import { createHash } from "node:crypto"
import type { ServerResponse } from "node:http"
import * as RecordingServer from "./internal/RecordingServer.ts"

/** A request as the upstream got it. */
export type Received = RecordingServer.Received

export interface DemoUpstreamOptions {
  /** Listen on this unix socket instead of a free port of the loopback interface. */
  readonly socketPath?: string | undefined
  /** Remember credentials as they came, instead of a fingerprint of them. For tests with made-up keys. */
  readonly raw?: boolean | undefined
}

export interface DemoUpstream {
  /** `http://127.0.0.1:<port>`; absent on a unix socket. */
  readonly url: string | undefined
  readonly received: Effect.Effect<ReadonlyArray<Received>>
}

/** The only model it has. */
export const model = "demo"

const Part = Schema.Union([Schema.String, Schema.Struct({ text: Schema.optionalKey(Schema.String) })])
const Content = Schema.Union([Schema.String, Schema.Array(Part)])
const Message = Schema.Struct({
  role: Schema.optionalKey(Schema.String),
  content: Schema.optionalKey(Schema.NullOr(Content))
})

/** All it reads of a request. */
const Asked = Schema.fromJsonString(
  Schema.Struct({
    messages: Schema.optionalKey(Schema.Array(Message)),
    input: Schema.optionalKey(Schema.Union([Schema.String, Schema.Array(Message)])),
    stream: Schema.optionalKey(Schema.Boolean)
  })
)

export const acquire = (options: DemoUpstreamOptions = {}): Effect.Effect<DemoUpstream, never, Scope.Scope> =>
  RecordingServer.acquire(options, (request, body, response) => {
    const path = (request.url ?? "").split("?")[0]
    response.setHeader("x-demo", "1")
    if (request.method === "GET" && path === "/v1/models") {
      return sendJson(response, 200, {
        object: "list",
        data: [{ id: model, object: "model", created: 0, owned_by: "demo" }]
      })
    }
    const answer = request.method === "POST" ? answers[path ?? ""] : undefined
    if (answer === undefined)
      return sendError(response, 404, `the demo upstream has no ${request.method} ${path}`)
    const asked = Schema.decodeUnknownOption(Asked)(body)
    if (asked._tag === "None")
      return sendError(response, 400, "the demo upstream could not read the body as JSON of this path")
    const question = lastText(asked.value.messages ?? asked.value.input)
    const id = createHash("sha256").update(`${path}\n${body}`).digest("hex").slice(0, 24)
    response.setHeader("x-litellm-call-id", `demo-${id}`)
    answer({ response, id, question, text: say(question), stream: asked.value.stream === true })
  })

interface Answer {
  readonly response: ServerResponse
  readonly id: string
  readonly question: string
  readonly text: string
  readonly stream: boolean
}

const say = (question: string): string =>
  `This is the demo upstream; no model was asked. You said: ${question.length > 2000 ? `${question.slice(0, 2000)}…` : question}`

const lastText = (messages: string | ReadonlyArray<typeof Message.Type> | undefined): string => {
  if (messages === undefined || typeof messages === "string") return messages ?? ""
  const content = messages.findLast(({ role }) => role === undefined || role === "user")?.content ?? ""
  return typeof content === "string"
    ? content
    : content.map((part) => (typeof part === "string" ? part : (part.text ?? ""))).join("")
}

/** One token a word: as good as any for a model that is none. */
const words = (text: string): ReadonlyArray<string> => text.match(/\S+\s*/gu) ?? []

const sendJson = (response: ServerResponse, status: number, body: unknown): void => {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
}

const sendError = (response: ServerResponse, status: number, message: string): void =>
  sendJson(response, status, { error: { message, type: "invalid_request_error", param: null, code: "demo" } })

const sendEvents = (
  response: ServerResponse,
  events: ReadonlyArray<readonly [name: string | undefined, data: unknown]>
): void => {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" })
  for (const [name, data] of events) {
    response.write(
      `${name === undefined ? "" : `event: ${name}\n`}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`
    )
  }
  response.end()
}

const chatCompletion = ({ id, question, response, stream, text }: Answer): void => {
  const usage = {
    prompt_tokens: words(question).length,
    completion_tokens: words(text).length,
    total_tokens: words(question).length + words(text).length
  }
  const head = { id: `chatcmpl-demo-${id}`, created: 0, model }
  if (!stream) {
    return sendJson(response, 200, {
      ...head,
      object: "chat.completion",
      choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" }],
      usage
    })
  }
  const chunk = (delta: object, finishReason: string | null = null) => ({
    ...head,
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta, finish_reason: finishReason }]
  })
  sendEvents(response, [
    [undefined, chunk({ role: "assistant", content: "" })],
    ...words(text).map((content) => [undefined, chunk({ content })] as const),
    [undefined, chunk({}, "stop")],
    [undefined, { ...head, object: "chat.completion.chunk", choices: [], usage }],
    [undefined, "[DONE]"]
  ])
}

const messages = ({ id, question, response, stream, text }: Answer): void => {
  const usage = { input_tokens: words(question).length, output_tokens: words(text).length }
  const message = { id: `msg_demo_${id}`, type: "message", role: "assistant", model, stop_sequence: null }
  if (!stream) {
    return sendJson(response, 200, {
      ...message,
      content: [{ type: "text", text }],
      stop_reason: "end_turn",
      usage
    })
  }
  const event = (type: string, data: object) => [type, { type, ...data }] as const
  sendEvents(response, [
    event("message_start", {
      message: { ...message, content: [], stop_reason: null, usage: { ...usage, output_tokens: 0 } }
    }),
    event("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
    ...words(text).map((word) =>
      event("content_block_delta", { index: 0, delta: { type: "text_delta", text: word } })
    ),
    event("content_block_stop", { index: 0 }),
    event("message_delta", { delta: { stop_reason: "end_turn", stop_sequence: null }, usage }),
    event("message_stop", {})
  ])
}

const responses = ({ id, question, response, stream, text }: Answer): void => {
  const input = words(question).length
  const output = words(text).length
  const item = { id: `msg_demo_${id}`, type: "message", role: "assistant", status: "completed" }
  const done = {
    id: `resp_demo_${id}`,
    object: "response",
    created_at: 0,
    model,
    status: "completed",
    output: [{ ...item, content: [{ type: "output_text", text, annotations: [] }] }],
    usage: { input_tokens: input, output_tokens: output, total_tokens: input + output }
  }
  if (!stream) return sendJson(response, 200, done)
  const event = (type: string, data: object, sequence: number) =>
    [type, { type, sequence_number: sequence, ...data }] as const
  const part = { item_id: item.id, output_index: 0, content_index: 0 }
  sendEvents(response, [
    event("response.created", { response: { ...done, status: "in_progress", output: [] } }, 0),
    event(
      "response.output_item.added",
      { output_index: 0, item: { ...item, status: "in_progress", content: [] } },
      1
    ),
    ...words(text).map((delta, index) => event("response.output_text.delta", { ...part, delta }, index + 2)),
    event("response.output_text.done", { ...part, text }, output + 2),
    event("response.output_item.done", { output_index: 0, item: done.output[0] }, output + 3),
    event("response.completed", { response: done }, output + 4)
  ])
}

const answers: Readonly<Record<string, (answer: Answer) => void>> = {
  "/v1/chat/completions": chatCompletion,
  "/v1/messages": messages,
  "/v1/messages/count_tokens": ({ question, response }) =>
    sendJson(response, 200, { input_tokens: words(question).length }),
  "/v1/responses": responses
}
