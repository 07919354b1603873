/**
 * The names under which a server answers: what a request's `Host` may say.
 *
 * A page whose name was made to lead to this server's address (DNS rebinding) sends its own name, and is refused before
 * anything else is looked at. Pure, but for the middleware at the end.
 */
import { Effect } from "effect"
import { HttpServer, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { NetAddress } from "effect/net"
import * as Problem from "./internal/Problem.ts"

/** Names of this machine that only itself can mean. */
export const local: ReadonlyArray<string> = ["localhost", "127.0.0.1", "[::1]"]

/**
 * The name in a `Host` header, in lower case and without the port; `undefined` for anything that is not a plain name or
 * address.
 */
export const nameIn = (host: string | undefined): string | undefined =>
  /^(\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9._-]{0,252}[a-z0-9])?)(?::\d{1,5})?$/u.exec(
    host?.toLowerCase() ?? ""
  )?.[1]

/** The names of a server that listens at an address: the address, the local ones, and those that were configured. */
export const of = (
  address: NetAddress.SocketAddress,
  configured: ReadonlyArray<string> = []
): ReadonlySet<string> => {
  const own =
    NetAddress.isInetAddress(address) && !NetAddress.isUnspecified(address.address)
      ? [NetAddress.formatUrlHost(address.address)]
      : []
  return new Set([...local, ...own, ...configured].flatMap((name) => nameIn(name) ?? []))
}

/** Answers a request under one of the names, and refuses every other. */
export const checked = Effect.fnUntraced(function* (configured: ReadonlyArray<string>) {
  const { address } = yield* HttpServer.HttpServer
  const names = of(address, configured)
  return <E, R>(answer: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
    Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers }) => {
      const name = nameIn(headers["host"])
      return name !== undefined && names.has(name) ? answer : Effect.succeed(misdirected)
    })
})

const misdirected = Problem.toResponse(
  Problem.make(
    "misdirected_request",
    "HostUnknown",
    "this server does not answer under the name in the Host header. Ask it by its address, or let its operator name it: serve --host-name NAME"
  )
)
