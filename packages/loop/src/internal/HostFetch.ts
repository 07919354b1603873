/**
 * A `fetch` for the AI SDK that reaches a unix socket or a base URL, and nothing else.
 *
 * No redirect is followed, nothing is decompressed, no connection is kept, and no proxy is read from the environment:
 * where a request goes is what the caller said. What comes back is bounded before anything parses it.
 */
import * as http from "node:http"
import * as https from "node:https"
import { Readable } from "node:stream"
import type { ChatEndpoint } from "../ChatModel.ts"

export interface FetchLimits {
  /** Of one line: an event of a stream is one, and is parsed when it is whole. */
  readonly lineBytesMax: number
  /** Of the whole body. */
  readonly bodyBytesMax: number
  /** Of the body of an answer that is none; what is over is left out. */
  readonly errorBytesMax: number
}

/** More came than anybody asked for. */
export class AnswerTooLarge extends Error {
  override readonly name = "AnswerTooLarge"
}

/** Nobody is there to ask. */
export class Unreachable extends Error {
  override readonly name = "Unreachable"
}

/** Where the API is, as a URL. What is before the path is not looked at where there is a socket. */
export const baseUrlOf = (at: ChatEndpoint): string =>
  "socketPath" in at ? "http://localhost/v1" : at.baseUrl

export const make =
  (at: ChatEndpoint, limits: FetchLimits): typeof globalThis.fetch =>
  (input, init = {}) =>
    new Promise<Response>((resolve, reject) => {
      const url = new URL(input instanceof Request ? input.url : input)
      const { body, method = "GET", signal } = init
      if (typeof body !== "string") return reject(new TypeError("a body must be a string"))
      const request = (url.protocol === "https:" ? https : http).request({
        ...("socketPath" in at
          ? { socketPath: at.socketPath }
          : { host: url.hostname.replaceAll(/^\[|\]$/gu, ""), port: url.port === "" ? undefined : url.port }),
        method,
        path: `${url.pathname}${url.search}`,
        headers: {
          ...Object.fromEntries(new Headers(init.headers)),
          host: url.host,
          "accept-encoding": "identity",
          "content-length": String(Buffer.byteLength(body))
        },
        agent: false,
        ...(signal === undefined || signal === null ? {} : { signal })
      })
      request.on("error", (cause) =>
        reject(signal?.aborted === true ? cause : new Unreachable(cause.message, { cause }))
      )
      request.on("response", (answer) => {
        try {
          resolve(responseOf(answer, limits))
        } catch (cause) {
          answer.destroy()
          reject(cause)
        }
      })
      request.end(body)
    })

const bodyless = new Set([204, 205, 304])

const responseOf = (answer: http.IncomingMessage, limits: FetchLimits): Response => {
  const status = answer.statusCode ?? 0
  const init = { status, statusText: answer.statusMessage ?? "", headers: headersOf(answer) }
  if (bodyless.has(status)) {
    answer.resume()
    return new Response(null, init)
  }
  const isGood = status >= 200 && status < 300
  const body = isGood ? held(answer, limits) : beginning(answer, limits.errorBytesMax)
  return new Response(
    Readable.toWeb(Readable.from(body, { objectMode: false })) as ReadableStream<Uint8Array>,
    init
  )
}

const headersOf = (answer: http.IncomingMessage): Headers => {
  const headers = new Headers()
  for (const [name, values] of Object.entries(answer.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value)
  }
  return headers
}

/** What breaks off is not over: Node tells the two apart, and so must whoever reads this. */
async function* held(answer: http.IncomingMessage, limits: FetchLimits): AsyncGenerator<Uint8Array> {
  let bytes = 0
  let lineBytes = 0
  for await (const chunk of answer as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength
    const lineBreak = chunk.lastIndexOf(10)
    lineBytes = lineBreak === -1 ? lineBytes + chunk.byteLength : chunk.byteLength - lineBreak - 1
    if (bytes > limits.bodyBytesMax) throw new AnswerTooLarge(`more than ${limits.bodyBytesMax} bytes came`)
    if (lineBytes > limits.lineBytesMax) {
      throw new AnswerTooLarge(`a line of more than ${limits.lineBytesMax} bytes came`)
    }
    yield chunk
  }
}

async function* beginning(answer: http.IncomingMessage, bytesMax: number): AsyncGenerator<Uint8Array> {
  let bytes = 0
  for await (const chunk of answer as AsyncIterable<Uint8Array>) {
    yield chunk.subarray(0, bytesMax - bytes)
    bytes += chunk.byteLength
    if (bytes >= bytesMax) return
  }
}
