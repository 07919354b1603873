/** Configuration of the mirror, checked and with its defaults. Plain data, for the threads that serve runs. */
import { baseUrl } from "@cogni/sandbox-core/SandboxPlace"
import { named } from "@cogni/sandbox-core/Remedy"
import * as PackagePattern from "@cogni/sandbox-core/PackagePattern"
import { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import * as Record from "effect/Record"
import * as Result from "effect/Result"
import * as EgressProxy from "../../EgressProxy.ts"
import type { PackageMirrorOptions, RegistryOptions } from "../../PackageMirror.ts"
import * as FetchRule from "./FetchRule.ts"

const MiB = 1024 * 1024

/** Values of limits that are not set. */
export const defaults = {
  cacheBytesMax: 4096 * MiB,
  fileBytesMax: 512 * MiB,
  metadataBytesMax: 64 * MiB,
  runBytesMax: 8192 * MiB,
  bytesPerSecondMax: 64 * MiB,
  concurrentMax: 16,
  silentSecondsMax: 30
} as const

export type MirrorLimits = { readonly [Name in keyof typeof defaults]: number }

export interface MirrorConfig extends MirrorLimits {
  /** URL of the mirror, as the sandbox sees it. */
  readonly baseUrl: string
  readonly places: Readonly<Partial<Record<PackagePattern.Registry, FetchRule.Place>>>
  /** HTTP proxy by origin, with its password. */
  readonly proxies: Readonly<Record<string, string>>
  readonly cacheDirectory?: string | undefined
}

/** Registries that a configuration opens. */
export const registriesOf = (
  config: Pick<MirrorConfig, "places"> | undefined
): ReadonlyArray<PackagePattern.Registry> =>
  PackagePattern.registries.filter((registry) => config?.places[registry] !== undefined)

/** Checks the options of the mirror. */
export const resolve = (
  options: PackageMirrorOptions,
  ofGateway: EgressProxy.EgressProxy | undefined
): Result.Result<MirrorConfig, Misconfigured> =>
  Result.gen(function* () {
    const places: Partial<Record<PackagePattern.Registry, FetchRule.Place>> = {}
    const proxies: Record<string, string> = {}
    const egressProxy = options.egressProxy ?? ofGateway
    for (const registry of PackagePattern.registries) {
      const given = options[registry]
      if (given === undefined) continue
      const place = yield* placeOf(registry, given)
      places[registry] = place
      for (const origin of place.origins) {
        const proxy = yield* proxyOf(egressProxy, origin)
        if (proxy !== undefined) proxies[origin] = proxy
      }
    }
    const { cacheDirectory } = options
    return {
      ...Record.map(defaults, (value: number, name) => options[name] ?? value),
      baseUrl: `${baseUrl}/packages`,
      places,
      proxies,
      ...(cacheDirectory === undefined ? {} : { cacheDirectory })
    }
  })

const placeOf = (
  registry: PackagePattern.Registry,
  { allowPrivateAddresses = false, fileOrigins = [], url: text }: RegistryOptions
): Result.Result<FetchRule.Place, Misconfigured> => {
  const refuse = (detail: string, remedy: string) =>
    Result.fail(new Misconfigured({ option: named("GatewayLlmProxy.packages"), detail, remedy }))
  const url = URL.parse(text.replace(/^sparse\+/u, ""))
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:"))
    return refuse(`has no URL for ${registry}`, "Write it as https://registry.example.com")
  if (url.username !== "" || url.password !== "")
    return refuse(
      `has a credential in the URL for ${registry}, and the mirror never sends one`,
      "Take it out, or run a registry on this host that has it"
    )
  if (url.search !== "" || url.hash !== "")
    return refuse(`has a query or a fragment in the URL for ${registry}`, "Remove everything after the path")
  const origins = fileOrigins.map((origin) => URL.parse(origin))
  const wrong = fileOrigins.find((origin, index) => {
    const parsed = origins[index]
    return parsed === null || parsed === undefined || parsed.origin !== origin.replace(/\/$/u, "")
  })
  if (wrong !== undefined)
    return refuse(
      `names ${JSON.stringify(wrong.slice(0, 200))} for ${registry}, which is not an origin`,
      "Write an origin as https://files.example.com"
    )
  const host = url.hostname.replace(/^\[|\]$/gu, "")
  // An address that the operator wrote out is meant as it is.
  const isPrivateLiteral = Result.isFailure(
    FetchRule.allowed({ url: url.href, origins: [url.origin], allowPrivateAddresses: false }, url.href)
  )
  return Result.succeed({
    url: url.href.replace(/\/+$/u, ""),
    origins: [...new Set([url.origin, ...origins.flatMap((origin) => origin?.origin ?? [])])],
    allowPrivateAddresses: allowPrivateAddresses || isPrivateLiteral || host === "localhost"
  })
}

const proxyOf = (
  proxy: EgressProxy.EgressProxy | undefined,
  origin: string
): Result.Result<string | undefined, Misconfigured> => {
  const { hostname, port, protocol } = new URL(origin)
  // Like curl, which uses the proxy of HTTPS_PROXY only for https.
  if (protocol !== "https:") return Result.succeed(undefined)
  return Result.mapError(
    EgressProxy.resolve(proxy, {
      host: hostname.replace(/^\[|\]$/gu, ""),
      port: port === "" ? 443 : Number(port)
    }),
    ({ problem, remedy }) =>
      new Misconfigured({ option: named("GatewayLlmProxy.egressProxy"), detail: problem, remedy })
  )
}
