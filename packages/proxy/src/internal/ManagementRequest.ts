/**
 * Sends a request to an upstream's management API, and reads its answer up to a size.
 *
 * The connections are those of calls: through the same HTTP proxy, with the same certificates. Redirects are not
 * followed, so that the key reaches only this address.
 */
import * as http from "node:http"
import * as https from "node:https"
import * as Result from "effect/Result"
import * as EgressProxy from "../EgressProxy.ts"
import * as KeyInjection from "../KeyInjection.ts"
import * as UpstreamClient from "./gateway/UpstreamClient.ts"

/** How the host reaches the API. */
export interface Connection {
  /** HTTP proxy between this host and the upstream (default: none). */
  readonly egressProxy?: EgressProxy.EgressProxy | undefined
  /** PEM certificates to trust for an https upstream, instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

/** Connections to one address. */
export type Connections = http.Agent

/** Creates the connections to a valid URL. Fails if the proxy's URL is invalid. */
export const connections = (
  url: string,
  { certificateAuthorities, egressProxy }: Connection
): Result.Result<Connections, EgressProxy.EgressProxyRefused> => {
  const { hostname, port, protocol } = new URL(url)
  const secure = protocol === "https:"
  const host = hostname.replace(/^\[|\]$/gu, "")
  return Result.map(
    EgressProxy.resolve(egressProxy, { host, port: port === "" ? (secure ? 443 : 80) : Number(port) }),
    (proxyUrl) => UpstreamClient.pooled({ secure, proxyUrl, certificateAuthorities })
  )
}

export interface ManagementRequest {
  readonly connections: Connections
  readonly url: string
  readonly key: KeyInjection.UpstreamKey
  /** Headers that the request has instead of the key's, with the credential. */
  readonly headers?: ReadonlyArray<readonly [name: string, value: string]> | undefined
  readonly signal: AbortSignal
  readonly method?: "GET" | "POST" | undefined
  /** Sent as JSON. */
  readonly body?: unknown
  readonly answerBytesMax: number
}

/** Bounds a proxy's answer to `CONNECT`, which the signal does not end. The request itself has no listener for it. */
const connectMillisMax = 10_000

/** Returns the status and the text of the answer. The text is absent if it is too long. */
export const send = ({
  answerBytesMax,
  body,
  connections: agent,
  headers,
  key,
  method = "GET",
  signal,
  url
}: ManagementRequest) =>
  new Promise<{ readonly status: number; readonly text: string | undefined }>((resolve, reject) => {
    const text = body === undefined ? undefined : JSON.stringify(body)
    const { request } = url.startsWith("https:") ? https : http
    request(url, {
      agent,
      method,
      signal,
      timeout: connectMillisMax,
      headers: {
        ...(headers === undefined
          ? { authorization: KeyInjection.bearer(key), accept: "application/json" }
          : Object.fromEntries(headers)),
        ...(text === undefined
          ? {}
          : { "content-type": "application/json", "content-length": String(Buffer.byteLength(text)) })
      }
    })
      .on("error", reject)
      .once("response", (answer) => {
        textOf(answer, answerBytesMax).then(
          (said) => resolve({ status: answer.statusCode ?? 0, text: said }),
          reject
        )
      })
      .end(text)
  })

const textOf = async (answer: http.IncomingMessage, bytesMax: number): Promise<string | undefined> => {
  const pieces: Array<Buffer> = []
  let bytes = 0
  for await (const piece of answer) {
    bytes += (piece as Buffer).byteLength
    if (bytes > bytesMax) return undefined
    pieces.push(piece as Buffer)
  }
  return Buffer.concat(pieces).toString("utf8")
}
