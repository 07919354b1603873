/** Finds the addresses of an origin, once for each conversation, before a credential is requested. */
import { named } from "@cogni/sandbox-core/Remedy"
import { Effect } from "effect"
import { lookup } from "node:dns/promises"
import { isIP } from "node:net"
import { networkInterfaces } from "node:os"
import type { GitNetwork } from "../git/GitEnvironment.ts"
import { OriginUnavailable } from "../../GitRelayError.ts"
import * as OriginAddress from "../../OriginAddress.ts"
import { isLocal } from "../../Refs.ts"

/** How git reaches an origin. */
export interface Way {
  readonly network: GitNetwork | undefined
  /** Value of `http.curloptResolve`. */
  readonly resolve?: string
}

/** Resolves a name; tests provide their own. */
export type Lookup = (hostname: string) => Promise<ReadonlyArray<string>>

/** Time limit for one name, in seconds. */
const lookupSecondsMax = 20

/** Resolves as curl does: this host's own names first, then its name service. */
const systemLookup: Lookup = async (hostname) =>
  (await lookup(hostname, { all: true })).map(({ address }) => address)

/**
 * Finds the route to an origin. With a proxy, the proxy resolves names and decides where they may lead, and git
 * connects only to the proxy.
 */
export const wayTo = Effect.fnUntraced(function* (
  url: string,
  network: GitNetwork | undefined,
  privateServers: OriginAddress.PrivateServers,
  find: Lookup = systemLookup
): Effect.fn.Return<Way, OriginUnavailable> {
  if (isLocal(url)) return { network }
  const hostname = new URL(url).hostname.replace(/^\[|\]$/gu, "")
  const { noProxy, proxyUrl, ...direct } = network ?? {}
  const isLiteral = isIP(hostname) !== 0
  const usesProxy =
    proxyUrl !== undefined && url.startsWith("https:") && !OriginAddress.isDirect(hostname, noProxy)
  // A literal address is checked even if the proxy connects to it.
  if (usesProxy && !isLiteral) return { network: { ...direct, proxyUrl } }
  const addresses = isLiteral ? [hostname] : yield* found(hostname, find)
  const allowed = OriginAddress.allowed(url, addresses, ownAddresses(), privateServers)
  if (allowed === undefined) return yield* notAllowed
  if (usesProxy) return { network: { ...direct, proxyUrl } }
  return {
    network: direct,
    ...(isLiteral ? {} : { resolve: OriginAddress.resolveOption(url, allowed) })
  }
})

const found = (hostname: string, find: Lookup) =>
  Effect.tryPromise({ try: () => find(hostname), catch: () => unresolved }).pipe(
    Effect.timeoutOrElse({ duration: `${lookupSecondsMax} seconds`, orElse: () => Effect.fail(unresolved) })
  )

/** Addresses of all interfaces of this host, including public ones. */
const ownAddresses = (): ReadonlyArray<string> =>
  Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map(({ address }) => address))

const unresolved = new OriginUnavailable({
  fault: "unknown_host",
  detail: "has a host name that cannot be resolved",
  remedy: "Check the URL, and this host's name service",
  isRetryable: true
})

const notAllowed = new OriginUnavailable({
  fault: "unreachable",
  detail: "has an address that is private or belongs to this host",
  remedy: `If this is intended, have the operator allow private addresses for it (${named("HostGitRelay.privateServers")})`
})
