/**
 * An HTTP server on this host, for as long as a scope, that remembers what it was sent.
 *
 * For upstreams that are not real. It listens on a loopback port or on a unix socket, and on nothing else.
 */
import { Effect, type Scope } from "effect"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as http from "node:http"
import type { AddressInfo } from "node:net"

/** A request as it arrived. */
export interface Received {
  readonly method: string
  readonly target: string
  /** In order, names as they were written; one that came twice is there twice. */
  readonly headers: ReadonlyArray<readonly [name: string, value: string]>
  readonly bodyBytes: number
  /** SHA-256, in hexadecimal. */
  readonly bodyDigest: string
  /** The client hung up before the answer was whole; as of the time of asking. */
  readonly cut: boolean
}

export interface Options {
  /** Absent: a free port of the loopback interface. */
  readonly socketPath?: string | undefined
  /** Keep credentials as they came, instead of a fingerprint of them. For tests with made-up keys. */
  readonly raw?: boolean | undefined
}

export interface Server {
  /** Absent on a unix socket. */
  readonly url: string | undefined
  readonly received: Effect.Effect<ReadonlyArray<Received>>
}

export type Handle = (request: http.IncomingMessage, body: string, response: http.ServerResponse) => void

const receivedMax = 1000
const bodyBytesMax = 64 * 1024 * 1024
const credentialNames = new Set(["authorization", "x-api-key", "api-key", "x-litellm-api-key"])

export const acquire = Effect.fnUntraced(function* (
  options: Options,
  handle: Handle
): Effect.fn.Return<Server, never, Scope.Scope> {
  const received: Array<{ entry: Received; request: http.IncomingMessage; response: http.ServerResponse }> =
    []

  const onRequest = (request: http.IncomingMessage, response: http.ServerResponse) => {
    const digest = createHash("sha256")
    const kept: Array<Buffer> = []
    let bodyBytes = 0
    request.on("error", () => undefined)
    response.on("error", () => undefined)
    request.on("data", (chunk: Buffer) => {
      digest.update(chunk)
      bodyBytes += chunk.length
      if (bodyBytes <= bodyBytesMax) kept.push(chunk)
    })
    request.on("end", () => {
      const entry: Received = {
        method: request.method ?? "",
        target: request.url ?? "",
        headers: pairs(request.rawHeaders).map(([name, value]) =>
          options.raw === true || !credentialNames.has(name.toLowerCase())
            ? [name, value]
            : [name, fingerprint(value)]
        ),
        bodyBytes,
        bodyDigest: digest.digest("hex"),
        cut: false
      }
      if (received.length === receivedMax) received.shift()
      received.push({ entry, request, response })
      handle(request, Buffer.concat(kept).toString("utf8"), response)
    })
  }

  const server = yield* Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<http.Server>((resolve, reject) => {
          const made = http.createServer(
            { requestTimeout: 0, keepAliveTimeout: 5000, maxHeaderSize: 64 * 1024 },
            onRequest
          )
          made.once("error", reject)
          if (options.socketPath === undefined) made.listen(0, "127.0.0.1", () => resolve(made))
          else made.listen(options.socketPath, () => resolve(made))
        })
    ),
    (made) =>
      Effect.promise(async () => {
        const closed = new Promise<void>((resolve) => made.close(() => resolve()))
        made.closeAllConnections()
        await closed
        if (options.socketPath !== undefined) await fs.rm(options.socketPath, { force: true })
      })
  )
  return {
    url:
      options.socketPath === undefined
        ? `http://127.0.0.1:${(server.address() as AddressInfo).port}`
        : undefined,
    received: Effect.sync(() =>
      received.map(({ entry, response }) => ({
        ...entry,
        cut: response.destroyed && !response.writableFinished
      }))
    )
  }
})

/** Enough to see that two credentials are the same one, and nothing else. */
export const fingerprint = (value: string): string => {
  const [scheme, ...rest] = value.split(" ")
  const hash = (text: string) => `sha256:${createHash("sha256").update(text).digest("hex").slice(0, 12)}`
  return rest.length === 0 ? hash(value) : `${scheme} ${hash(rest.join(" "))}`
}

const pairs = (raw: ReadonlyArray<string>): ReadonlyArray<readonly [string, string]> =>
  Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index]!, raw[2 * index + 1]!] as const)
