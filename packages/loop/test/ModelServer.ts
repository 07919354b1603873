/** A test server with a model's API on a Unix socket or a port. Answers are functions, and requests are recorded. */
import { Effect, FileSystem, Path } from "effect"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as http from "node:http"
import type { AddressInfo } from "node:net"

export interface Heard {
  readonly method: string | undefined
  readonly url: string | undefined
  readonly headers: http.IncomingHttpHeaders
  readonly body: Readonly<Record<string, unknown>>
}

export interface Server {
  readonly socketPath: string
  readonly heard: Array<Heard>
  /** Number of answers that the client aborted. */
  readonly aborted: () => number
}

export type Answer = (response: http.ServerResponse, heard: Heard) => void

const listen = (server: http.Server, where: string | number) =>
  Effect.callback<void, Error>((resume) => {
    server.once("error", (error) => resume(Effect.fail(error)))
    const options = typeof where === "string" ? { path: where } : { port: where, host: "127.0.0.1" }
    server.listen(options, () => resume(Effect.void))
  })

const open = Effect.fnUntraced(function* (answer: Answer, where: string | number) {
  const heard: Array<Heard> = []
  let aborted = 0
  const server = http.createServer((request, response) => {
    let text = ""
    request.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk
    })
    request.on("end", () => {
      const { headers, method, url } = request
      const told = { method, url, headers, body: JSON.parse(text) as Record<string, unknown> }
      heard.push(told)
      response.on("close", () => {
        if (!response.writableEnded) aborted += 1
      })
      answer(response, told)
    })
  })
  yield* Effect.acquireRelease(listen(server, where), () =>
    Effect.sync(() => {
      server.closeAllConnections()
      server.close()
    })
  )
  return { server, heard, aborted: () => aborted }
})

/** Serves on a Unix socket. */
export const onSocket = Effect.fnUntraced(function* (answer: Answer) {
  const fs = yield* FileSystem.FileSystem
  const directory = yield* fs.makeTempDirectoryScoped({ prefix: "model-" })
  const socketPath = (yield* Path.Path).join(directory, "llm.sock")
  return { ...(yield* open(answer, socketPath)), socketPath }
}, Effect.provide(NodeServices.layer))

/** Serves on a loopback port. */
export const onPort = Effect.fnUntraced(function* (answer: Answer) {
  const opened = yield* open(answer, 0)
  const { port } = opened.server.address() as AddressInfo
  return { ...opened, port, baseUrl: `http://127.0.0.1:${port}/v1` }
})

/** Formats chunks of a chat completion as events of a stream. */
export const events = (...chunks: ReadonlyArray<unknown>): string =>
  chunks.map((chunk) => `data: ${typeof chunk === "string" ? chunk : JSON.stringify(chunk)}\n\n`).join("")

const chunkOf = (delta: unknown, finish: string | null = null) => ({
  id: "c1",
  object: "chat.completion.chunk",
  created: 0,
  model: "m",
  choices: [{ index: 0, delta, finish_reason: finish }]
})

export const saying = (text: string) => chunkOf({ content: text })
export const calling = (index: number, call: { id?: string; name?: string; arguments?: string }) =>
  chunkOf({
    tool_calls: [
      {
        index,
        ...(call.id === undefined ? {} : { id: call.id, type: "function" }),
        function: {
          ...(call.name === undefined ? {} : { name: call.name }),
          ...(call.arguments === undefined ? {} : { arguments: call.arguments })
        }
      }
    ]
  })
export const finish = (reason: string) => chunkOf({}, reason)
export const usage = (prompt: number, completion: number) => ({
  ...chunkOf({}),
  choices: [],
  usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
})
export const done = "[DONE]"

/** Sends a whole answer at once. */
export const streams =
  (...chunks: ReadonlyArray<unknown>): Answer =>
  (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).end(events(...chunks))
  }

/** Sends an error in the form of the APIs. */
export const refuses =
  (status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Answer =>
  (response) => {
    response
      .writeHead(status, { "content-type": "application/json", ...headers })
      .end(typeof body === "string" ? body : JSON.stringify(body))
  }
