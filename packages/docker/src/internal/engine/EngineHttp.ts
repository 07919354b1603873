/**
 * HTTP to an engine: calls that return JSON, answers that are read as a stream, and connections that the engine hands
 * over for both directions.
 *
 * The only module that connects to an engine. Connections are kept open: a run makes eight calls, and a new connection
 * costs as much as the shortest of them.
 */
import { Agent, type IncomingMessage, request, type RequestOptions } from "node:http"
import type { Duplex, Readable } from "node:stream"
import type { DockerAddress } from "../../DockerSocket.ts"

interface EngineCall {
  readonly method: "GET" | "POST" | "DELETE"
  /** Path without a version, so that the engine uses its newest. Made with {@link path}. */
  readonly path: string
  readonly query?: Readonly<Record<string, string>>
  /** Sent as JSON. */
  readonly body?: object
  /** Ends the call, but not a stream that was already returned. */
  readonly abortSignal: AbortSignal
}

export interface EngineHttp {
  /** Returns the JSON value of an answer, or `undefined` if the answer is empty. */
  readonly json: (call: EngineCall) => Promise<unknown>
  /** Returns the text of an answer. {@link parsed} reads it. */
  readonly text: (call: EngineCall) => Promise<string>
  /** Returns an answer as soon as it begins. Destroying it closes its connection. */
  readonly stream: (call: EngineCall) => Promise<Readable>
  /** Upgrades a connection, and returns its bytes in both directions. */
  readonly upgrade: (call: EngineCall) => Promise<Duplex>
  /** Closes all connections. */
  readonly close: () => void
}

/** Maximum size of a JSON answer in bytes. The largest is a list of containers, with about 2 KiB for each. */
export const answerBytesMax = 64 * 1024 * 1024

/** Maximum size in bytes of the text of an error. */
const errorBytesMax = 64 * 1024

/** Encodes the parts of a path. A slash in a part stays, because an image's name may contain one. */
export const path = (...parts: ReadonlyArray<string>): string =>
  parts.map((part) => `/${part.split("/").map(encodeURIComponent).join("/")}`).join("")

/** Where `node:http` finds the engine. An IPv6 address has no brackets there. */
export const target = (address: DockerAddress): RequestOptions =>
  address.type === "unix"
    ? { socketPath: address.path }
    : { host: address.host.replaceAll(/^\[|\]$/gu, ""), port: address.port }

export const make = (address: DockerAddress): EngineHttp => {
  const agent = new Agent({ keepAlive: true })

  const sendOver = (
    connections: Agent | false,
    call: EngineCall,
    headers: RequestOptions["headers"] = {}
  ): Promise<Begun> =>
    new Promise((resolve, reject) => {
      const text = call.body === undefined ? undefined : JSON.stringify(call.body)
      const sent = request({
        ...target(address),
        agent: connections,
        method: call.method,
        path: call.query === undefined ? call.path : `${call.path}?${new URLSearchParams(call.query)}`,
        headers: {
          ...headers,
          ...(text === undefined
            ? {}
            : { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(text) })
        }
      })
      const abort = () => sent.destroy(Object.assign(new Error("aborted"), { code: "ABORT_ERR" }))
      const release = () => call.abortSignal.removeEventListener("abort", abort)
      // Stays for the whole life of the connection: an error without a listener would end the process.
      sent.on("error", (error) => {
        release()
        reject(sent.reusedSocket && isUnheard(call, error) ? new ConnectionStale() : error)
      })
      sent.once("response", (response) => {
        response.on("error", release)
        resolve({ _tag: "Answered", response, release })
      })
      sent.once("upgrade", (_response, socket, head) => {
        release()
        socket.on("error", () => undefined)
        if (head.byteLength > 0) socket.unshift(head)
        resolve({ _tag: "Upgraded", socket })
      })
      if (call.abortSignal.aborted) abort()
      else call.abortSignal.addEventListener("abort", abort, { once: true })
      sent.end(text)
    })

  /** Repeats a call on a new connection if the engine had closed the kept one. */
  const send = (call: EngineCall, headers?: RequestOptions["headers"]): Promise<Begun> =>
    sendOver(agent, call, headers).catch((error: unknown) => {
      if (!(error instanceof ConnectionStale)) throw error
      return sendOver(false, call, headers)
    })

  /** Returns an answer that reports success. */
  const succeed = async (call: EngineCall): Promise<Answered> => {
    const begun = await send(call)
    if (begun._tag === "Upgraded") {
      begun.socket.destroy()
      throw new Error("the engine upgraded a connection without being asked")
    }
    const { statusCode = 0 } = begun.response
    if (statusCode >= 200 && statusCode < 300) return begun
    throw await refusal(begun)
  }

  const textOf = async (call: EngineCall): Promise<string> => {
    const { release, response } = await succeed(call)
    const text = await read(response, answerBytesMax).finally(release)
    if (text === undefined) throw new Error(`the answer is longer than ${answerBytesMax} bytes`)
    return text
  }

  return {
    json: (call) => textOf(call).then(parsed),
    text: textOf,
    stream: async (call) => {
      const { release, response } = await succeed(call)
      release()
      return response
    },
    upgrade: async (call) => {
      const begun = await send(call, { Connection: "Upgrade", Upgrade: "tcp" })
      if (begun._tag === "Upgraded") return begun.socket
      const { statusCode = 0 } = begun.response
      if (statusCode >= 300) throw await refusal(begun)
      begun.release()
      begun.response.destroy()
      throw new Error(`the engine answered ${statusCode} instead of upgrading the connection`)
    },
    close: () => agent.destroy()
  }
}

/** Returns the JSON value of the text of an answer, or `undefined` if that is empty. */
export const parsed = (text: string): unknown => {
  if (text === "") return undefined
  try {
    return JSON.parse(text)
  } catch {
    throw new Error("unexpected response: it is not JSON")
  }
}

/** The engine had closed the kept connection of a call, and has not acted on the call. */
class ConnectionStale extends Error {}

/**
 * Returns whether the engine cannot have acted on a call that failed on a kept connection. `EPIPE`: nothing of it was
 * written. `ECONNRESET`: it may have been read, so only a call that changes nothing may be repeated.
 */
const isUnheard = ({ method }: EngineCall, { code }: NodeJS.ErrnoException): boolean =>
  code === "EPIPE" || (code === "ECONNRESET" && method === "GET")

interface Answered {
  readonly _tag: "Answered"
  readonly response: IncomingMessage
  /** From here on, the call's signal no longer ends the connection. */
  readonly release: () => void
}

type Begun = Answered | { readonly _tag: "Upgraded"; readonly socket: Duplex }

/** Reads the text of an answer. Returns `undefined` and closes the connection if it is too long. */
const read = (response: IncomingMessage, bytesMax: number): Promise<string | undefined> =>
  new Promise((resolve, reject) => {
    const pieces: Array<Buffer> = []
    let bytes = 0
    response.on("data", (piece: Buffer) => {
      bytes += piece.byteLength
      pieces.push(piece)
      if (bytes <= bytesMax) return
      resolve(undefined)
      response.destroy()
    })
    response.once("end", () => resolve(Buffer.concat(pieces).toString("utf8")))
    // Also if the engine closes the connection in the middle of an answer.
    response.once("error", reject)
  })

/** The error of an answer that reports a failure: its status, and the engine's message. */
const refusal = async ({ release, response }: Answered): Promise<Error> => {
  const { statusCode } = response
  const text = (await read(response, errorBytesMax).finally(release)) ?? ""
  return Object.assign(new Error(messageOf(text) ?? `it answered with status ${statusCode}`), { statusCode })
}

const messageOf = (text: string): string | undefined => {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === "object" && value !== null && "message" in value) return String(value.message)
  } catch {
    // Some errors of an engine are plain text.
  }
  return text.trim() === "" ? undefined : text
}
