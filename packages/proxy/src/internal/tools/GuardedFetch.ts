/**
 * `fetch` for one URL of the operator: no other address gets the request or its credential, and no redirect is
 * followed.
 *
 * Answers are streamed and limited in bytes. There is no stream of the server's own (`GET` is answered with 405).
 */
import type { Redacted } from "effect"
import type { IncomingMessage } from "node:http"
import * as KeyInjection from "../../KeyInjection.ts"
import * as GuardedRequest from "./GuardedRequest.ts"

interface GuardedFetchOptions {
  readonly url: URL
  readonly allowPrivateAddresses: boolean
  /** Longest answer to one request, in bytes. */
  readonly answerBytesMax: number
  /** Time until the whole answer to one request has come, in seconds. Then its connection closes, and no other. */
  readonly requestSecondsMax: number
  readonly credential?: { readonly header: string; readonly secret: Redacted.Redacted<string> } | undefined
  /** Hears why a request failed, or its answer broke off. */
  readonly onBroken: (why: string) => void
}

export const make =
  (options: GuardedFetchOptions) =>
  (input: string | URL, init: RequestInit = {}): Promise<Response> =>
    new Promise((resolve, reject) => {
      const { credential, onBroken, url } = options
      const broken = (why: string) => {
        onBroken(why)
        reject(new Error(why))
      }
      const { method = "GET", signal } = init
      if (new URL(input).href !== url.href) return broken("asked for another address")
      if (method === "GET") return resolve(new Response(null, { status: 405 }))
      const { outgoing, problem } = GuardedRequest.open({
        url,
        method,
        allowPrivateAddresses: options.allowPrivateAddresses,
        headers: {
          ...Object.fromEntries(new Headers(init.headers)),
          ...(credential === undefined ? {} : KeyInjection.header(credential.header, credential.secret))
        }
      })
      if (outgoing === undefined) return broken(problems[problem()])
      const stop = () => void outgoing.destroy()
      signal?.addEventListener("abort", stop, { once: true })
      let isLate = false
      const late = setTimeout(() => {
        isLate = true
        stop()
      }, options.requestSecondsMax * 1000)
      outgoing.once("close", () => clearTimeout(late))
      outgoing.on("error", () =>
        isLate || signal?.aborted === true ? reject(aborted()) : broken(problems[problem()])
      )
      outgoing.once("upgrade", (_answer, socket) => {
        socket.destroy()
        broken(problems.unreachable)
      })
      outgoing.once("response", (answer) => {
        if ((answer.headers["content-encoding"] ?? "identity") !== "identity") {
          stop()
          return broken("answered with an encoding that was not asked for")
        }
        resolve(responseOf(answer, options, stop, () => isLate))
      })
      outgoing.end(typeof init.body === "string" ? init.body : undefined)
    })

const aborted = () => new DOMException("the request was given up", "AbortError")

const problems: Readonly<Record<"private_address" | "unreachable", string>> = {
  private_address: "has an address that is private or belongs to this host",
  unreachable: "cannot be reached, or broke off its answer"
}

/** Statuses whose answers have no body. */
const withoutBody: ReadonlySet<number> = new Set([204, 205, 304])

const responseOf = (
  answer: IncomingMessage,
  { answerBytesMax, onBroken }: GuardedFetchOptions,
  stop: () => void,
  isLate: () => boolean
): Response => {
  const { statusCode = 502 } = answer
  const headers = new Headers()
  for (const name of ["content-type", "mcp-session-id"]) {
    const value = answer.headers[name]
    if (typeof value === "string") headers.set(name, value)
  }
  if (withoutBody.has(statusCode)) {
    answer.resume()
    return new Response(null, { status: statusCode, headers })
  }
  // A call without a waiting caller is no reason to end the calls of others.
  const broken = (why: string) => (isLate() ? undefined : onBroken(why))
  return new Response(bodyOf(answer, answerBytesMax, broken, stop), {
    status: statusCode >= 200 && statusCode < 600 ? statusCode : 502,
    headers
  })
}

const bodyOf = (
  answer: IncomingMessage,
  answerBytesMax: number,
  onBroken: (why: string) => void,
  stop: () => void
) => {
  let bytes = 0
  let isOver = false
  return new ReadableStream<Uint8Array>({
    start: (controller) => {
      const end = (why: string | undefined) => {
        if (isOver) return
        isOver = true
        if (why === undefined) return controller.close()
        onBroken(why)
        controller.error(new Error(why))
        stop()
      }
      answer.on("data", (piece: Buffer) => {
        bytes += piece.byteLength
        if (bytes > answerBytesMax) return end(`sent more than ${answerBytesMax} bytes in one answer`)
        if (!isOver) controller.enqueue(new Uint8Array(piece))
      })
      answer.once("end", () => end(undefined))
      answer.on("error", () => end(problems.unreachable))
      answer.once("close", () => end(problems.unreachable))
    },
    cancel: () => {
      isOver = true
      stop()
    }
  })
}
