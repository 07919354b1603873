/**
 * Location of the model API: a URL that the host reaches, or a container on an internal network of the engine.
 *
 * Parses plain data into an address whose parts are safe to write into a configuration. A URL never contains a
 * credential: the key is a separate, redacted option.
 */
import { Result, Schema } from "effect"
import * as UpstreamProfile from "./UpstreamProfile.ts"

export const Upstream = Schema.Union([
  /** Reached by the host process, on behalf of a proxy without a network. */
  Schema.Struct({ type: Schema.Literal("host"), url: Schema.String }),
  /** Reached by the proxy container itself, by name, on an internal network (no route out). */
  Schema.Struct({ type: Schema.Literal("container"), url: Schema.String, networkName: Schema.String })
])

export type Upstream = typeof Upstream.Type

/** The upstream's URL is invalid. */
export class UpstreamRefused extends Schema.TaggedError<UpstreamRefused>()("UpstreamRefused", {
  problem: Schema.String,
  remedy: Schema.String
}) {
  /** The problem without its remedy. */
  get detail(): string {
    return `the upstream's URL ${this.problem}`
  }
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** Parts of a URL, each limited to a small alphabet. */
export interface Address {
  readonly secure: boolean
  /** A name or an IP address; IPv6 without brackets. */
  readonly host: string
  readonly port: number
  /** Value of the `Host` header. */
  readonly authority: string
  /** Path before the profile's prefix (`/v1`): empty, or `/some/path` without a trailing slash. */
  readonly basePath: string
  /** For people: scheme, authority and base path. */
  readonly display: string
}

const example = "Write it as http://127.0.0.1:4000 or https://models.example.com/v1"

const refuse = (problem: string, remedy = example) => Result.fail(new UpstreamRefused({ problem, remedy }))

/** Parses a URL, with or without the profile's prefix at its end (default `/v1`). */
export const address = (upstream: Upstream, pathPrefix = "/v1"): Result.Result<Address, UpstreamRefused> => {
  const url = URL.parse(upstream.url)
  if (url === null) return refuse("is not a URL")
  if (url.protocol !== "http:" && url.protocol !== "https:") return refuse("is neither http nor https")
  if (url.username !== "" || url.password !== "") {
    return refuse("holds a credential", "Take it out of the URL and give it as the key")
  }
  if (url.search !== "" || url.hash !== "")
    return refuse("has a query or a fragment", "Remove everything after the path")
  if (!/^(?:[A-Za-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,45}\])$/u.test(url.hostname))
    return refuse("has no valid host")
  const path = url.pathname.replace(/\/+$/u, "")
  const basePath =
    pathPrefix !== "" && path.endsWith(pathPrefix)
      ? path.slice(0, -pathPrefix.length).replace(/\/+$/u, "")
      : path
  if (!/^(?:\/[A-Za-z0-9._~-]+)*$/u.test(basePath)) {
    return refuse("has a path with characters other than letters, digits and . _ ~ -")
  }
  const secure = url.protocol === "https:"
  if (upstream.type === "container" && secure) {
    return refuse(
      "uses https for a container",
      "Use http inside an internal network, or an upstream of type host"
    )
  }
  return Result.succeed({
    secure,
    host: url.hostname.replace(/^\[|\]$/gu, ""),
    port: url.port === "" ? (secure ? 443 : 80) : Number(url.port),
    authority: url.host,
    basePath,
    display: `${url.protocol}//${url.host}${basePath}`
  })
}

/** Options that determine an upstream's profile. */
export interface ProfileOptions {
  /** Kind of the upstream, or a choice with changes to it. Default: a known public API's, otherwise `litellm`. */
  readonly profile?: UpstreamProfile.Name | UpstreamProfile.Choice | undefined
  /** Header with the key, if it is not the profile's own. */
  readonly keyHeader?: UpstreamProfile.KeyHeader | undefined
}

export interface ResolvedUpstream {
  readonly address: Address
  readonly profile: UpstreamProfile.UpstreamProfile
}

/** Parses a URL and selects its profile. Fails if LiteLLM's identity would go to a public API. */
export const resolve = (
  upstream: Upstream,
  { keyHeader, profile: chosen }: ProfileOptions = {}
): Result.Result<ResolvedUpstream, UpstreamRefused | UpstreamProfile.ProfileRefused> =>
  Result.gen(function* () {
    const { host } = yield* address(upstream, "")
    const selected = yield* UpstreamProfile.select(host, chosen)
    const profile = keyHeader === undefined ? selected : { ...selected, keyHeader }
    return { address: yield* address(upstream, profile.pathPrefix), profile }
  })
