/**
 * HTTP proxy between the host and the upstream, as companies use them to control outgoing connections.
 *
 * Decides whether an upstream is reached through it. The connection is a tunnel (`CONNECT`), so the proxy sees the name
 * of the upstream and no key, if the upstream uses https.
 */
import type { Redacted } from "effect"
import { Result, Schema } from "effect"
import * as KeyInjection from "./KeyInjection.ts"
import type { Address } from "./Upstream.ts"

export interface EgressProxy {
  /** `http://host:port` or `https://…`, with user and password if it requires them. */
  readonly url: Redacted.Redacted<string>
  /** Hosts that are reached without it, as in `NO_PROXY`: names with their subdomains, addresses, `*`, `host:port`. */
  readonly noProxy?: string | undefined
}

/** The proxy's URL is invalid. The error never contains it, because it may hold a password. */
export class EgressProxyRefused extends Schema.TaggedError<EgressProxyRefused>()("EgressProxyRefused", {
  problem: Schema.String
}) {
  readonly remedy = "Write it as http://proxy.example.com:3128"
  /** The problem without its remedy. */
  get detail(): string {
    return `the URL of the proxy to the upstream ${this.problem}`
  }
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** Returns the proxy's URL in plain text if the upstream is reached through it. */
export const resolve = (
  proxy: EgressProxy | undefined,
  address: Pick<Address, "host" | "port">
): Result.Result<string | undefined, EgressProxyRefused> => {
  if (proxy === undefined || isDirect(proxy.noProxy, address)) return Result.succeed(undefined)
  const refuse = (problem: string) => Result.fail(new EgressProxyRefused({ problem }))
  const url = URL.parse(KeyInjection.handedOver(proxy.url))
  if (url === null) return refuse("is not a URL")
  if (url.protocol !== "http:" && url.protocol !== "https:") return refuse("is neither http nor https")
  if (url.hostname === "") return refuse("has no host")
  if (!/^\/?$/u.test(url.pathname) || url.search !== "" || url.hash !== "")
    return refuse("has more than a host and a port")
  if (!isDecodable(url.username) || !isDecodable(url.password))
    return refuse("has a user or password with a % that is not written as %25")
  return Result.succeed(url.href)
}

/** Returns whether a part of a URL can be percent-decoded, as each connection does. */
const isDecodable = (text: string): boolean => {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

/** Returns whether an upstream is on the list of those without a proxy. Same rules as curl, without address ranges. */
export const isDirect = (
  noProxy: string | undefined,
  { host, port }: Pick<Address, "host" | "port">
): boolean => {
  const name = host.toLowerCase().replace(/\.$/u, "")
  return (noProxy ?? "")
    .toLowerCase()
    .split(/[\s,]+/u)
    .some((entry) => {
      if (entry === "*") return true
      const [, bracketed, plain, ported] =
        /^(?:\[([^\]]+)\]|((?:[^:]*:){2,}[^:]*|[^:]*))(?::(\d+))?$/u.exec(entry) ?? []
      const listed = (bracketed ?? plain ?? "").replace(/^\*?\./u, "").replace(/\.$/u, "")
      if (listed === "" || (ported !== undefined && Number(ported) !== port)) return false
      return name === listed || name.endsWith(`.${listed}`)
    })
}
