/**
 * The cookie in which a browser keeps the secret of its sign-in, and the proof that a request comes from our page.
 *
 * A browser sends a cookie with requests that another page caused. So a cookie counts only with a header whose value
 * only our page can know: it is derived from the secret, and no other page may read our answers or set the header.
 * Pure.
 */
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import { Effect, Redacted } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { timingSafeEqual } from "node:crypto"
import * as HostNames from "../HostNames.ts"

/**
 * Name of the cookie without TLS, and with it. A browser accepts the latter only from this host, over HTTPS and for all
 * paths. The former can also come from another port of this machine, or from a host in the same domain.
 */
const plainName = "cogni-sign-in"
const secureName = "__Host-cogni-sign-in"

/** Header with the derived value. */
export const csrfHeader = "x-cogni-csrf"

/** Without TLS, only these routes get the cookie. */
const path = "/api/v1"

/** The route that tells the page the header's value, and so cannot require it. */
const signInPath = `${path}/sign-in`

/** The valid name: with TLS, only the one that no other server can set. */
const nameIn = (request: HttpServerRequest.HttpServerRequest) =>
  secureName in request.cookies || isSecure(request) ? secureName : plainName

/** Returns the secret in the cookie of a request. */
export const secretOf = (
  request: HttpServerRequest.HttpServerRequest
): Redacted.Redacted<string> | undefined => {
  const value = request.cookies[nameIn(request)]
  return value === undefined ? undefined : Redacted.make(value, { label: "sign-in" })
}

/**
 * Returns whether another server set a cookie, too: which of them is ours is unknown. Without TLS, some browsers accept
 * both names from other ports of this machine.
 */
export const isDoubled = (request: HttpServerRequest.HttpServerRequest): boolean => {
  const valid = isSecure(request) ? [secureName] : [secureName, plainName]
  const names = (request.headers["cookie"] ?? "").split(";").map((pair) => pair.split("=", 1)[0]?.trim())
  return names.filter((one) => valid.some((name) => name === one)).length > 1
}

/** Returns the value of the header. The secret cannot be computed from it. */
export const csrfOf = (secret: Redacted.Redacted<string>): Effect.Effect<string> =>
  GrantToken.derive(secret, "cogni-sandbox csrf")

/**
 * Returns whether another page may have caused a request with the cookie. Browsers say where a request comes from, but
 * only to servers on this machine or with HTTPS.
 */
export const isForged = Effect.fnUntraced(function* (
  { headers, method, url }: HttpServerRequest.HttpServerRequest,
  secret: Redacted.Redacted<string>
) {
  const site = headers["sec-fetch-site"]
  if (site !== undefined && site !== "same-origin") return true
  if (method === "GET" && url.split("?")[0] === signInPath) return false
  const [sent, derived] = [headers[csrfHeader], yield* csrfOf(secret)].map((text) => Buffer.from(text ?? ""))
  return !(sent!.length === derived!.length && timingSafeEqual(sent!, derived!))
})

/** Seconds that a sign-in lasts: until the grant expires, and not longer than `secondsMax`. */
export const keptSeconds = (
  { expiresAt }: Pick<ExecutionGrant, "expiresAt">,
  nowMillis: number,
  secondsMax: number
): number =>
  expiresAt === null
    ? secondsMax
    : Math.max(1, Math.min(secondsMax, Math.floor((expiresAt.getTime() - nowMillis) / 1000)))

/**
 * Returns whether the cookie may travel only over HTTPS. Not under the local names without a TLS proxy, where some
 * browsers would refuse such a cookie. A proxy may hide both the name and the protocol; a browser tells its own page.
 */
const isSecure = ({ headers }: HttpServerRequest.HttpServerRequest): boolean =>
  headers["x-forwarded-proto"]?.split(",")[0]?.trim() === "https" ||
  headers["origin"]?.startsWith("https://") === true ||
  !HostNames.local.includes(HostNames.nameIn(headers["host"]) ?? "")

const common = { httpOnly: true, sameSite: "strict" } as const

/** Name and attributes of the cookie that a request gets. */
const cookieFor = (request: HttpServerRequest.HttpServerRequest) =>
  isSecure(request)
    ? { name: secureName, attributes: { ...common, path: "/", secure: true } }
    : { name: plainName, attributes: { ...common, path, secure: false } }

/** Lets the browser keep the secret. */
export const keep = (
  response: HttpServerResponse.HttpServerResponse,
  request: HttpServerRequest.HttpServerRequest,
  secret: Redacted.Redacted<string>,
  seconds: number
): HttpServerResponse.HttpServerResponse => {
  const { attributes, name } = cookieFor(request)
  return HttpServerResponse.setCookieUnsafe(response, name, GrantToken.tell(secret), {
    ...attributes,
    maxAge: `${seconds} seconds`
  })
}

/** Lets the browser remove the secret. */
export const drop = (
  response: HttpServerResponse.HttpServerResponse,
  request: HttpServerRequest.HttpServerRequest
): HttpServerResponse.HttpServerResponse => {
  const { attributes, name } = cookieFor(request)
  return HttpServerResponse.expireCookieUnsafe(response, name, attributes)
}
