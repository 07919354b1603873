/**
 * Requests from the host process to the model's upstream, over connections that are kept.
 *
 * What goes out was written by this side alone, so connections are shared between runs. Nothing is sent twice: an
 * upstream that breaks off may have run the model already, and only the agent can know whether it wants that again.
 */
import * as http from "node:http"
import * as https from "node:https"
import * as tls from "node:tls"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { Header } from "../policy/RoutePolicy.ts"
import type { Address } from "../../Upstream.ts"

export interface UpstreamClientOptions {
  readonly address: Address
  readonly connectSecondsMax: number
  /** PEM certificates to trust instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

/** There is no answer, or no more of it. */
export class UpstreamFailed extends Data.TaggedError("UpstreamFailed")<{
  readonly outcome: "upstream_unreachable" | "upstream_timeout" | "upstream_cut"
  readonly detail: string
}> {}

export interface UpstreamClient {
  /** Send it off. Succeeds when its answer begins; interrupted, it is broken off at once. */
  readonly send: (
    target: string,
    headers: ReadonlyArray<Header>,
    body: Uint8Array
  ) => Effect.Effect<http.IncomingMessage, UpstreamFailed>
}

/** Below what servers keep a quiet connection for (uvicorn: 5 s), so that none is used while its end is under way. */
const idleMillisMax = 3000

const connectionsIdleMax = 64

export const make = (options: UpstreamClientOptions): UpstreamClient => {
  const { address, connectSecondsMax } = options
  const pooling = { keepAlive: true, maxFreeSockets: connectionsIdleMax, scheduling: "lifo" } as const
  const agent = address.secure
    ? new https.Agent({
        ...pooling,
        ca: [...(options.certificateAuthorities ?? systemAuthorities())],
        ALPNProtocols: ["http/1.1"]
      })
    : new http.Agent(pooling)
  // The agent's own `timeout` would hold for calls under way as well.
  agent.on("free", (socket: { setTimeout: (millis: number) => void }) => socket.setTimeout(idleMillisMax))
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
          headers: [
            "host",
            address.authority,
            "content-length",
            String(body.byteLength),
            ...headers.flatMap(([name, value]) => [name, bytesOf(value)])
          ],
          ...(address.secure && !isAddress(address.host) ? { servername: address.host } : {})
        })
        // Every connection is closed in the end: an error is made of that only where it is one.
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
          if (socket.connecting) socket.once(address.secure ? "secureConnect" : "connect", on)
          else on()
        })
        outgoing.once("response", (answer) => {
          // An answer that breaks off after the call has ended is nobody's any more, and must not end the thread.
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

/** A header is bytes; Node writes each character of its text as one. */
const bytesOf = (value: string): string =>
  /^[\x20-\x7e]*$/u.test(value) ? value : Buffer.from(value, "utf8").toString("latin1")

const isAddress = (host: string): boolean => /^[0-9.]+$|:/u.test(host)

let authorities: ReadonlyArray<string> | undefined

/** Node's own list, `NODE_EXTRA_CA_CERTS`, and what the system trusts. */
export const systemAuthorities = (): ReadonlyArray<string> =>
  (authorities ??= [...new Set([...tls.getCACertificates("default"), ...tls.getCACertificates("system")])])
