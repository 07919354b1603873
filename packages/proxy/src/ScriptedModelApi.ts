/**
 * Model API without a model: a script answers chat completions, messages and responses, streamed or not. Embeddings are
 * made from the words of their text.
 *
 * For the demo, tests and benchmarks. It listens on a loopback port until its scope is closed. It records each request,
 * to show what the proxy added. Every answer has the header `x-scripted-model: 1`.
 */
import { Effect, Option, Result, Schema, type Scope } from "effect"
import { createHash } from "node:crypto"
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import * as SocketListener from "./internal/gateway/SocketListener.ts"
import * as ChatCompletions from "./internal/scripted/ChatCompletions.ts"
import * as Embeddings from "./internal/scripted/Embeddings.ts"
import * as Messages from "./internal/scripted/Messages.ts"
import * as Responses from "./internal/scripted/Responses.ts"
import type { Answer, Asked, Body, Figures, Said, Script, Step } from "./internal/scripted/Script.ts"
import { pieces, send, sendJson } from "./internal/scripted/Script.ts"
import * as ScriptedStep from "./internal/scripted/ScriptedStep.ts"

export type { Asked, Script, Step } from "./internal/scripted/Script.ts"

/** A request as it arrived. */
export interface Received {
  readonly method: string
  readonly target: string
  /** In order, with names as they were written. Repeated headers are repeated. */
  readonly headers: ReadonlyArray<readonly [name: string, value: string]>
  readonly bodyBytes: number
  /** SHA-256, in hexadecimal. */
  readonly bodyDigest: string
  /** Empty unless `raw` is set. */
  readonly body: Body
  /** Names of the tools that the request offers. */
  readonly tools: ReadonlyArray<string>
  /** Usage that the answer reported; absent unless it was a model's answer. */
  readonly usage: Figures | undefined
  /** The client disconnected before the answer was complete, as of the time of reading. */
  readonly cut: boolean
}

export interface Options {
  readonly script: Script
  /** Keeps bodies, and credentials in plain text instead of as fingerprints. For tests with fake keys. */
  readonly raw?: boolean | undefined
  /** Name of its only model (default: the requested name). */
  readonly model?: string | undefined
}

export interface ScriptedModelApi {
  /** `http://127.0.0.1:<port>` */
  readonly url: string
  readonly received: Effect.Effect<ReadonlyArray<Received>>
  /** Exceptions that the script threw: mistakes in the test. */
  readonly problems: Effect.Effect<ReadonlyArray<string>>
}

const receivedMax = 1000
const bodyBytesMax = 64 * 1024 * 1024
const credentialNames = new Set(["authorization", "x-api-key", "api-key", "x-litellm-api-key"])
const dialects = [ChatCompletions.dialect, Messages.dialect, Responses.dialect]

export const acquire = Effect.fnUntraced(function* (
  options: Options
): Effect.fn.Return<ScriptedModelApi, never, Scope.Scope> {
  const received: Array<{ entry: Received; response: http.ServerResponse }> = []
  const problems: Array<string> = []
  let count = 0

  const onRequest = async (request: http.IncomingMessage, response: http.ServerResponse) => {
    response.on("error", () => undefined)
    const body = await bodyOf(request).catch(() => undefined)
    // The client disconnected during its request, so no answer can be sent.
    if (body === undefined) return
    const { tools, usage, write } = answerTo(options, request, body.text, count, problems)
    if (dialectOf(request) !== undefined) count += 1
    const entry: Received = {
      method: request.method ?? "",
      target: request.url ?? "",
      headers: headersOf(request, options.raw === true),
      bodyBytes: body.bytes,
      bodyDigest: body.digest,
      body: (options.raw === true ? parsed(body.text) : undefined) ?? {},
      tools,
      usage,
      cut: false
    }
    if (received.length === receivedMax) received.shift()
    received.push({ entry, response })
    response.setHeader("x-scripted-model", "1")
    // LiteLLM reports its call ID in this header.
    if (request.method === "POST")
      response.setHeader("x-litellm-call-id", `scripted-${body.digest.slice(0, 24)}`)
    write(response)
  }

  const server = yield* Effect.acquireRelease(listen(onRequest), SocketListener.close)
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received: Effect.sync(() =>
      received.map(({ entry, response }) => ({
        ...entry,
        cut: response.destroyed && !response.writableFinished
      }))
    ),
    problems: Effect.sync(() => [...problems])
  }
})

/** Plays the steps in order, and repeats the last one. */
export const steps = (script: readonly [Step, ...Array<Step>]): Script => {
  let index = 0
  return () => script[Math.min(index++, script.length - 1)]!
}

/** Calls that report different usage. More would soon report numbers that no client can read. */
const distinctCallsMax = 24

/**
 * Calls the script only for the turns of an agent's task: the requests that offer tools, counted by `index` from 0. A
 * request without tools gets a one-word answer. Each of 24 calls in a row reports a different usage, so that a sum
 * shows which calls it includes.
 */
export const turns = (script: (turn: Asked & { readonly index: number }) => ReturnType<Script>): Script => {
  let index = 0
  return (asked) => {
    const answer = asked.tools.length === 0 ? { say: "Done." } : script({ ...asked, index: index++ })
    const part = 2 ** (asked.number % distinctCallsMax)
    const usage = { inputTokens: 1000 + part, outputTokens: 100 + part }
    return "say" in answer || "call" in answer ? { usage, ...answer } : answer
  }
}

/** Replaces a credential with a hash, which shows only whether two credentials are equal. */
const fingerprint = (value: string): string => {
  const [scheme, ...rest] = value.split(" ")
  const hash = (text: string) => `sha256:${createHash("sha256").update(text).digest("hex").slice(0, 12)}`
  return rest.length === 0 ? hash(value) : `${scheme} ${hash(rest.join(" "))}`
}

interface Reaction {
  /** Absent unless this is a model's answer. */
  readonly usage?: Figures
  readonly write: (response: http.ServerResponse) => void
}

const pathOf = ({ url = "" }: http.IncomingMessage): string => url.split("?")[0]!

/** Returns the dialect of a request for an answer of the model; `undefined` for any other request. */
const dialectOf = (request: http.IncomingMessage) =>
  request.method === "POST" ? dialects.find(({ path }) => path === pathOf(request)) : undefined

const answerTo = (
  options: Options,
  request: http.IncomingMessage,
  text: string,
  number: number,
  problems: Array<string>
): Reaction & Pick<Said, "tools"> => {
  const path = pathOf(request)
  const dialect = dialectOf(request)
  const given = parsed(text)
  const body = given ?? {}
  const said = (dialect ?? Messages.dialect).said(body)
  const react = (): Reaction => {
    const answer = options.script({ ...said, number, body })
    if ("_tag" in answer) return { write: (response) => ScriptedStep.play(answer, response) }
    if (request.method === "POST" && path === Embeddings.path)
      return embedding(options, given, "refuse" in answer ? answer.refuse : undefined)
    if (dialect === undefined) return { write: aside(options, request.method, path, said.text) }
    if (given === undefined) return refusal(400, "the scripted model API could not read the body as JSON")
    if ("refuse" in answer) return refusal(400, answer.refuse)
    const usage = answer.usage ?? wordsOf(said.text, answer)
    const model = options.model ?? String(body["model"])
    return { usage, write: (response) => send(response, dialect, { answer, usage, number, model, body }) }
  }
  try {
    return { ...react(), tools: said.tools }
  } catch (cause) {
    problems.push(`${path}: ${String(cause)}`)
    return { ...refusal(500, "the script failed"), tools: said.tools }
  }
}

/** Answers a request for embeddings, unless the script refuses it. */
const embedding = (options: Options, given: Body | undefined, refused: string | undefined): Reaction => {
  if (given === undefined) return wireError("the scripted model API could not read the body as JSON")
  if (refused !== undefined) return wireError(refused)
  return Result.match(Embeddings.embed(given, options.model), {
    onSuccess: ({ answer, inputTokens }) => ({
      usage: { inputTokens, outputTokens: 0 },
      write: (response) => sendJson(response, answer)
    }),
    onFailure: ({ message, param }) => wireError(message, param)
  })
}

/** Error of OpenAI's API. */
const wireError = (message: string, param: string | null = null): Reaction => ({
  write: (response) =>
    sendJson(response, { error: { message, type: "invalid_request_error", param, code: null } }, 400)
})

/** Answers requests that need no model: the list of models, and a token count. */
const aside = (options: Options, method: string | undefined, path: string, text: string) => {
  if (method === "GET" && path === "/v1/models") {
    const data = [{ id: options.model ?? "scripted", object: "model", created: 0, owned_by: "script" }]
    return (response: http.ServerResponse) => sendJson(response, { object: "list", data })
  }
  if (method === "POST" && path === "/v1/messages/count_tokens") {
    return (response: http.ServerResponse) => sendJson(response, { input_tokens: tokensOf(text) })
  }
  return refusal(404, `the scripted model API has no ${method} ${path}`).write
}

/** Error that all three dialects understand. */
const refusal = (status: number, message: string): Reaction => ({
  write: (response) =>
    sendJson(
      response,
      { type: "error", error: { message, type: "invalid_request_error", param: null, code: "refused" } },
      status
    )
})

/** Counts one token per word, which is enough without a model. */
const tokensOf = (text: string): number => (text === "" ? 0 : pieces(text).length)

const wordsOf = (text: string, answer: Answer): Figures => ({
  inputTokens: tokensOf(text),
  outputTokens: tokensOf("say" in answer ? answer.say : JSON.stringify(answer.call))
})

const decodeBody = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Record(Schema.String, Schema.Unknown))
)

const parsed = (text: string): Body | undefined => Option.getOrUndefined(decodeBody(text))

const bodyOf = async (request: http.IncomingMessage) => {
  const digest = createHash("sha256")
  const kept: Array<Buffer> = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    digest.update(chunk)
    bytes += chunk.length
    if (bytes <= bodyBytesMax) kept.push(chunk)
  }
  return { bytes, digest: digest.digest("hex"), text: Buffer.concat(kept).toString("utf8") }
}

const headersOf = (request: http.IncomingMessage, raw: boolean): Received["headers"] =>
  Array.from({ length: request.rawHeaders.length / 2 }, (_, index) => {
    const [name, value] = [request.rawHeaders[2 * index]!, request.rawHeaders[2 * index + 1]!]
    return raw || !credentialNames.has(name.toLowerCase()) ? [name, value] : [name, fingerprint(value)]
  })

const listen = (onRequest: http.RequestListener) =>
  Effect.callback<http.Server>((resume) => {
    const limits = { requestTimeout: 0, keepAliveTimeout: 5000, maxHeaderSize: 64 * 1024 }
    const made = http.createServer(limits, onRequest)
    made.once("error", (error) => resume(Effect.die(error)))
    made.listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
  })
