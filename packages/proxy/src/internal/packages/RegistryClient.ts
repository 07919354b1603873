/**
 * Fetches from registries. A request has no header, cookie or credential but those that this module writes itself.
 *
 * A name is resolved at the connection, and all of its addresses must be allowed there: a name that changes its address
 * in between gains nothing. Through an HTTP proxy, the proxy resolves names, and its operator decides.
 */
import type { LookupFunction } from "node:net"
import * as dns from "node:dns"
import * as http from "node:http"
import * as https from "node:https"
import { createGunzip } from "node:zlib"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as UpstreamClient from "../gateway/UpstreamClient.ts"
import * as FetchRule from "./FetchRule.ts"

interface RegistryClientOptions {
  readonly connectSecondsMax: number
  /** A registry that sends nothing for this time is given up. */
  readonly silentSecondsMax: number
  /** HTTP proxy by origin; absent for origins that are reached directly. */
  readonly proxies: Readonly<Record<string, string>>
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

/** Why a registry's answer cannot be used. */
export class RegistryFailed extends Data.TaggedError("RegistryFailed")<{
  readonly outcome:
    | "registry_unreachable"
    | "registry_timeout"
    | "registry_cut"
    | "registry_refused"
    | "not_found"
    | "too_large"
    | "no_room"
    | "integrity_mismatch"
    | "run_limit"
  readonly detail: string
}> {}

export interface FetchRequest {
  readonly place: FetchRule.Place
  readonly url: URL
  readonly accept: string
  /** Compressed answers are only accepted where their size without compression is limited. */
  readonly isCompressible: boolean
}

/** An answer with status 200. */
interface RegistryAnswer {
  readonly contentType: string
  /** Size that the registry states; absent for compressed answers. */
  readonly bytes: number | undefined
  readonly body: AsyncIterable<Uint8Array>
  /** The URL that answered, after redirects. */
  readonly url: string
  readonly close: () => void
}

export interface RegistryClient {
  /** Fetches a URL, and follows redirects that are allowed. The caller reads or closes the answer. */
  readonly fetch: (request: FetchRequest) => Effect.Effect<RegistryAnswer, RegistryFailed>
}

/** Sent instead of the agent's. */
const userAgent = "cogni-sandbox"

export const make = (options: RegistryClientOptions): RegistryClient => {
  const agents = new Map<string, http.Agent>()
  const agentOf = (url: URL): http.Agent => {
    const proxyUrl = options.proxies[url.origin]
    const key = `${url.protocol} ${proxyUrl ?? ""}`
    const known = agents.get(key)
    if (known !== undefined) return known
    const { certificateAuthorities } = options
    const agent = UpstreamClient.pooled({
      secure: url.protocol === "https:",
      proxyUrl,
      certificateAuthorities
    })
    agents.set(key, agent)
    return agent
  }

  const send = ({ accept, isCompressible, place }: FetchRequest, url: URL) =>
    Effect.callback<http.IncomingMessage, RegistryFailed>((resume) => {
      const fail = (outcome: RegistryFailed["outcome"], detail: string) =>
        resume(Effect.failSync(() => new RegistryFailed({ outcome, detail })))
      const request = url.protocol === "https:" ? https.request : http.request
      const outgoing = request(url, {
        agent: agentOf(url),
        method: "GET",
        lookup: lookupOf(place),
        timeout: options.silentSecondsMax * 1000,
        headers: {
          accept,
          "accept-encoding": isCompressible ? "gzip" : "identity",
          "user-agent": userAgent
        }
      })
      const late = setTimeout(() => {
        fail("registry_timeout", `no connection within ${options.connectSecondsMax} s`)
        outgoing.destroy()
      }, options.connectSecondsMax * 1000)
      outgoing.once("socket", (socket) => {
        const onConnected = () => clearTimeout(late)
        if (socket.connecting) socket.once("connect", onConnected)
        else onConnected()
      })
      outgoing.once("timeout", () => {
        fail("registry_timeout", `the registry sent nothing for ${options.silentSecondsMax} s`)
        outgoing.destroy(new Error("the registry sent nothing"))
      })
      outgoing.once("response", (answer) => {
        clearTimeout(late)
        answer.on("error", () => undefined)
        resume(Effect.succeed(answer))
      })
      outgoing.on("error", (error: NodeJS.ErrnoException) => {
        clearTimeout(late)
        fail("registry_unreachable", error.message)
      })
      outgoing.once("close", () => {
        clearTimeout(late)
        fail("registry_cut", "the connection was closed before an answer")
      })
      outgoing.end()
      return Effect.sync(() => {
        clearTimeout(late)
        outgoing.destroy()
      })
    })

  return {
    fetch: (request) =>
      Effect.gen(function* () {
        let url = request.url
        for (let redirects = 0; redirects <= FetchRule.redirectsMax; redirects++) {
          const answer = yield* send(request, url)
          const status = answer.statusCode ?? 502
          const next = FetchRule.redirect(request.place, url, { status, location: answer.headers.location })
          if (next === undefined) return yield* answered(answer, url, request.isCompressible)
          answer.destroy()
          if (Result.isFailure(next)) return yield* refused(next.failure)
          url = next.success
        }
        return yield* refused(`the registry redirected more than ${FetchRule.redirectsMax} times`)
      })
  }
}

const refused = (detail: string) => Effect.fail(new RegistryFailed({ outcome: "registry_refused", detail }))

const answered = (answer: http.IncomingMessage, url: URL, isCompressible: boolean) =>
  Effect.suspend((): Effect.Effect<RegistryAnswer, RegistryFailed> => {
    const { headers, statusCode = 502 } = answer
    const close = () => void answer.destroy()
    if (statusCode !== 200) {
      close()
      return statusCode === 404 || statusCode === 410
        ? Effect.fail(
            new RegistryFailed({ outcome: "not_found", detail: `the registry answered ${statusCode}` })
          )
        : refused(`the registry answered ${statusCode}`)
    }
    const encoding = (headers["content-encoding"] ?? "identity").toLowerCase()
    const isCompressed = encoding === "gzip" && isCompressible
    if (encoding !== "identity" && !isCompressed) {
      close()
      return refused("the registry answered with an encoding that was not asked for")
    }
    const stated = Number(headers["content-length"])
    return Effect.succeed({
      contentType: headers["content-type"] ?? "",
      bytes:
        !isCompressed && Number.isSafeInteger(stated) && headers["content-length"] !== undefined
          ? stated
          : undefined,
      body: isCompressed ? decompressed(answer) : whole(answer),
      url: url.href,
      close
    })
  })

/** Reads an answer. One that breaks off is an error, and never a short file. */
const whole = async function* (answer: http.IncomingMessage): AsyncGenerator<Uint8Array> {
  for await (const piece of answer) yield piece as Buffer
  if (!answer.complete) throw new Error("the registry's answer broke off")
}

const decompressed = async function* (answer: http.IncomingMessage): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip()
  answer.on("error", (error) => gunzip.destroy(error))
  answer.on("close", () => {
    if (!answer.complete) gunzip.destroy(new Error("the registry's answer broke off"))
  })
  answer.pipe(gunzip)
  try {
    for await (const piece of gunzip) yield piece as Buffer
  } finally {
    gunzip.destroy()
    answer.destroy()
  }
}

const lookupOf =
  (place: FetchRule.Place): LookupFunction =>
  (hostname, options, callback) =>
    dns.lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, [])
      return FetchRule.mayConnect(
        place,
        addresses.map(({ address }) => address)
      )
        ? options.all === true
          ? callback(null, addresses)
          : callback(null, addresses[0]!.address, addresses[0]!.family)
        : callback(new Error(`${hostname} resolves to a private address`), [])
    })
