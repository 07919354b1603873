/**
 * Sends one HTTP request of a tool, directly and without redirects.
 *
 * A name is resolved at the connection, and all of its addresses must be allowed there: a name that changes its address
 * in between gains nothing.
 */
import { isPublic } from "@cogni/sandbox-host-files/PublicAddress"
import { Effect } from "effect"
import * as dns from "node:dns"
import * as http from "node:http"
import * as https from "node:https"
import { isIP, type LookupFunction } from "node:net"
import { networkInterfaces } from "node:os"

export interface GuardedRequest {
  readonly url: URL
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | undefined
  readonly allowPrivateAddresses: boolean
  readonly answerBytesMax: number
}

export interface GuardedAnswer {
  readonly status: number
  readonly contentType: string
  readonly location: string | undefined
  readonly body: Uint8Array
}

/** Why there is no answer. */
export type GuardedProblem = "encoded" | "private_address" | "too_long" | "unreachable"

/** Resolves a name; tests provide their own. */
export type Lookup = (
  hostname: string,
  answer: (error: Error | null, addresses: ReadonlyArray<dns.LookupAddress>) => void
) => void

const systemLookup: Lookup = (hostname, answer) =>
  dns.lookup(hostname, { all: true }, (error, addresses) => answer(error, addresses))

/** An open request, or none if its address is not allowed, and why it has no answer if it fails. */
interface OpenRequest {
  readonly outgoing: http.ClientRequest | undefined
  readonly problem: () => "private_address" | "unreachable"
}

/** Opens the request. Its caller sends the body and reads the answer. */
export const open = (
  request: Omit<GuardedRequest, "answerBytesMax" | "body">,
  find: Lookup = systemLookup
): OpenRequest => {
  const { url } = request
  const isAllowed = addressCheck(request)
  const hostname = url.hostname.replace(/^\[|\]$/gu, "")
  // An address as host name is connected to without a lookup.
  if (isIP(hostname) !== 0 && !isAllowed(hostname))
    return { outgoing: undefined, problem: () => "private_address" }
  let problem: ReturnType<OpenRequest["problem"]> = "unreachable"
  const start = url.protocol === "https:" ? https.request : http.request
  const outgoing = start(url, {
    // No connection is shared: one of another request may lead to another address.
    agent: false,
    method: request.method,
    headers: { ...request.headers, "accept-encoding": "identity", "user-agent": "cogni-sandbox" },
    lookup: lookupOf(find, isAllowed, () => {
      problem = "private_address"
    })
  })
  return { outgoing, problem: () => problem }
}

/** Sends the request, and reads the whole answer. It ends when it is interrupted. */
export const send = (
  request: GuardedRequest,
  find: Lookup = systemLookup
): Effect.Effect<GuardedAnswer, GuardedProblem> =>
  Effect.callback<GuardedAnswer, GuardedProblem>((resume) => {
    const fail = (problem: GuardedProblem) => resume(Effect.fail(problem))
    const { outgoing, problem } = open(request, find)
    if (outgoing === undefined) return void fail(problem())
    outgoing.once("response", (answer) => {
      const { headers, statusCode = 502 } = answer
      const pieces: Array<Buffer> = []
      let bytes = 0
      const stop = (why: GuardedProblem) => {
        fail(why)
        outgoing.destroy()
      }
      answer.on("error", () => fail("unreachable"))
      if ((headers["content-encoding"] ?? "identity") !== "identity") return stop("encoded")
      answer.on("data", (piece: Buffer) => {
        bytes += piece.byteLength
        if (bytes > request.answerBytesMax) return stop("too_long")
        pieces.push(piece)
      })
      answer.once("end", () => {
        const { "content-type": contentType = "", location } = headers
        resume(Effect.succeed({ status: statusCode, contentType, location, body: Buffer.concat(pieces) }))
      })
      answer.once("close", () => fail("unreachable"))
    })
    // An answer to no request of a tool.
    outgoing.once("upgrade", (_answer, socket) => {
      socket.destroy()
      fail("unreachable")
    })
    outgoing.on("error", () => fail(problem()))
    outgoing.end(request.body)
    return Effect.sync(() => void outgoing.destroy())
  })

const addressCheck = ({ allowPrivateAddresses }: Pick<GuardedRequest, "allowPrivateAddresses">) => {
  if (allowPrivateAddresses) return () => true
  const own = new Set(
    Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map(({ address }) => address))
  )
  return (address: string) => isPublic(address) && !own.has(address)
}

const lookupOf =
  (find: Lookup, isAllowed: (address: string) => boolean, onRefused: () => void): LookupFunction =>
  (hostname, options, callback) =>
    find(hostname, (error, addresses) => {
      if (error !== null) return callback(error, [])
      const [first] = addresses
      if (first === undefined || !addresses.every(({ address }) => isAllowed(address))) {
        onRefused()
        return callback(new Error("the address is not allowed"), [])
      }
      return options.all === true
        ? callback(null, [...addresses])
        : callback(null, first.address, first.family)
    })
