/**
 * The names of a server: the valid values of a request's `Host` header.
 *
 * A page whose name resolves to this server's address (DNS rebinding) sends its own name, and is refused before any
 * other check. Pure, except for the middleware at the end.
 */
import { Effect } from "effect"
import { HttpServer, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { NetAddress } from "effect/net"
import * as Problem from "./internal/Problem.ts"

/** Names that always mean the local machine. */
export const local: ReadonlyArray<string> = ["localhost", "127.0.0.1", "[::1]"]

/** Returns the name in a `Host` header, in lower case and without the port. `undefined`: it is not a valid name. */
export const nameIn = (host: string | undefined): string | undefined =>
  /^(\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9._-]{0,252}[a-z0-9])?)(?::\d{1,5})?$/u.exec(
    host?.toLowerCase() ?? ""
  )?.[1]

/** Returns the names of a server: the address where it listens, the local names, and the configured ones. */
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

/** Creates a middleware that refuses requests under any other name with 421. */
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
    "this server does not serve the name in the Host header. Use its address, or ask its operator to add the name: serve --host-name NAME"
  )
)
