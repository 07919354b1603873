/**
 * A `fetch` for the AI SDK that can reach only a Unix socket or a base URL.
 *
 * It follows no redirects, decompresses nothing, keeps no connections and reads no proxy from the environment: requests
 * go only where the caller said. Responses are bounded before anything parses them.
 */
import * as http from "node:http"
import * as https from "node:https"
import { Readable } from "node:stream"
import type { ChatEndpoint } from "../ChatMessage.ts"

export interface FetchLimits {
  /** Limit on one line. An event of a stream is a line, and is parsed when it is complete. */
  readonly lineBytesMax: number
  /** Limit on the whole body. */
  readonly bodyBytesMax: number
  /** Bytes that are read of an error response; the rest is ignored. */
  readonly errorBytesMax: number
}

/** The response exceeds a limit. */
export class AnswerTooLarge extends Error {
  override readonly name = "AnswerTooLarge"
}

/** The endpoint cannot be reached. */
export class Unreachable extends Error {
  override readonly name = "Unreachable"
}

/** Returns the API's base URL. For a socket, the host in the URL is not used. */
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

/** Passes a body on within its limits. A truncated body throws, so that the reader does not take it for complete. */
async function* held(answer: http.IncomingMessage, limits: FetchLimits): AsyncGenerator<Uint8Array> {
  let bytes = 0
  let lineBytes = 0
  for await (const chunk of answer as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength
    const lineBreak = chunk.lastIndexOf(10)
    lineBytes = lineBreak === -1 ? lineBytes + chunk.byteLength : chunk.byteLength - lineBreak - 1
    if (bytes > limits.bodyBytesMax) throw new AnswerTooLarge(`answer exceeds ${limits.bodyBytesMax} bytes`)
    if (lineBytes > limits.lineBytesMax) {
      throw new AnswerTooLarge(`a line of the answer exceeds ${limits.lineBytesMax} bytes`)
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
