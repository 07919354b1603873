/**
 * Sends requests from the host process to the upstream, over pooled connections.
 *
 * The host wrote every request itself, so runs share connections. No request is retried: an upstream that breaks off
 * may already have run the model, and only the agent can know whether it wants that again.
 */
import * as http from "node:http"
import * as https from "node:https"
import * as tls from "node:tls"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { HttpProxyAgent, HttpsProxyAgent } from "hpagent"
import type { Header } from "../policy/RoutePolicy.ts"
import type { Address } from "../../Upstream.ts"

interface UpstreamClientOptions {
  readonly address: Address
  readonly connectSecondsMax: number
  /** URL of the HTTP proxy between host and upstream. */
  readonly proxyUrl?: string | undefined
  /** PEM certificates to trust instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

/** The upstream did not answer, or its answer broke off. */
export class UpstreamFailed extends Data.TaggedError("UpstreamFailed")<{
  readonly outcome: "upstream_unreachable" | "upstream_timeout" | "upstream_cut"
  readonly detail: string
}> {}

export interface UpstreamClient {
  /** Sends a request. Succeeds when its answer begins. Interruption aborts it at once. */
  readonly send: (
    target: string,
    headers: ReadonlyArray<Header>,
    body: Uint8Array
  ) => Effect.Effect<http.IncomingMessage, UpstreamFailed>
}

/** Below the idle timeout of servers (uvicorn: 5 s), so that no connection is used while the server closes it. */
const idleMillisMax = 3000

const connectionsIdleMax = 64

export const make = (options: UpstreamClientOptions): UpstreamClient => {
  const { address, connectSecondsMax } = options
  const agent = pooled({ ...options, secure: address.secure })
  const request = address.secure ? https.request : http.request

  return {
    send: (target, headers, body) =>
      Effect.callback((resume) => {
        const outgoing = request({
          agent,
          host: address.host,
          port: address.port,
          method: "POST",
          path: `${address.basePath}${target}`,
          // Bounds the proxy's answer to `CONNECT`. The request itself has no listener for it.
          ...(options.proxyUrl === undefined ? {} : { timeout: connectSecondsMax * 1000 }),
          headers: [
            "host",
            address.authority,
            "content-length",
            String(body.byteLength),
            ...headers.flatMap(([name, value]) => [name, bytesOf(value)])
          ],
          ...(address.secure && !isAddress(address.host) ? { servername: address.host } : {})
        })
        // Every request emits `close` in the end, so the error is created only if it is needed.
        const fail = (outcome: UpstreamFailed["outcome"], detail: string) =>
          resume(Effect.failSync(() => new UpstreamFailed({ outcome, detail })))
        let isConnected = false
        const late = setTimeout(() => {
          fail("upstream_timeout", `no connection within ${connectSecondsMax} s`)
          outgoing.destroy()
        }, connectSecondsMax * 1000)
        outgoing.once("socket", (socket) => {
          const on = () => {
            isConnected = true
            clearTimeout(late)
            socket.setTimeout(0)
          }
          // A TLS socket within a tunnel is connected before its handshake. A reused one is authorized.
          const isReady = address.secure ? (socket as tls.TLSSocket).authorized : !socket.connecting
          if (isReady) on()
          else socket.once(address.secure ? "secureConnect" : "connect", on)
        })
        outgoing.once("response", (answer) => {
          // An answer that breaks off after its call has ended must not end the thread.
          answer.on("error", () => undefined)
          resume(Effect.succeed(answer))
        })
        outgoing.on("error", (error: NodeJS.ErrnoException) => {
          clearTimeout(late)
          fail(isConnected ? "upstream_cut" : "upstream_unreachable", error.message)
        })
        outgoing.once("close", () => {
          clearTimeout(late)
          fail("upstream_cut", "the connection was closed before an answer")
        })
        outgoing.end(body)
        return Effect.sync(() => {
          clearTimeout(late)
          outgoing.destroy()
        })
      })
  }
}

export interface PoolOptions extends Pick<UpstreamClientOptions, "proxyUrl" | "certificateAuthorities"> {
  readonly secure: boolean
}

/** Agent with pooled connections, direct or through a tunnel of the proxy. */
export const pooled = ({ certificateAuthorities, proxyUrl, secure }: PoolOptions): http.Agent => {
  const agent = agentOf(secure, proxyUrl, {
    keepAlive: true,
    maxFreeSockets: connectionsIdleMax,
    scheduling: "lifo",
    ...(secure
      ? { ca: [...(certificateAuthorities ?? systemAuthorities())], ALPNProtocols: ["http/1.1"] }
      : {})
  })
  // The `timeout` option of Node's agent would also apply to calls in progress.
  agent.on("free", (socket: { setTimeout: (millis: number) => void }) => socket.setTimeout(idleMillisMax))
  return agent
}

const agentOf = (secure: boolean, proxyUrl: string | undefined, options: https.AgentOptions): http.Agent =>
  proxyUrl === undefined
    ? secure
      ? new https.Agent(options)
      : new http.Agent(options)
    : secure
      ? new HttpsProxyAgent({ ...options, proxy: proxyUrl })
      : new HttpProxyAgent({ ...options, proxy: proxyUrl })

/** Encodes a header value as UTF-8, because Node writes each character of a string as one byte. */
const bytesOf = (value: string): string =>
  /^[\x20-\x7e]*$/u.test(value) ? value : Buffer.from(value, "utf8").toString("latin1")

const isAddress = (host: string): boolean => /^[0-9.]+$|:/u.test(host)

let authorities: ReadonlyArray<string> | undefined

/** Certificate authorities of Node, `NODE_EXTRA_CA_CERTS`, and the system. */
export const systemAuthorities = (): ReadonlyArray<string> =>
  (authorities ??= [...new Set([...tls.getCACertificates("default"), ...tls.getCACertificates("system")])])
