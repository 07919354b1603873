/** Where an origin is, found once for one conversation with it, before a credential is asked for. */
import { Effect } from "effect"
import { lookup } from "node:dns/promises"
import { isIP } from "node:net"
import { networkInterfaces } from "node:os"
import type { GitNetwork } from "../git/GitEnvironment.ts"
import { OriginUnavailable } from "../../GitRelayError.ts"
import * as OriginAddress from "../../OriginAddress.ts"
import { isLocal } from "../../Refs.ts"

/** How git is to reach the origin. */
export interface Way {
  readonly network: GitNetwork | undefined
  /** What `http.curloptResolve` is set to. */
  readonly resolve?: string
}

/** How a name is resolved; a test has its own. */
export type Lookup = (hostname: string) => Promise<ReadonlyArray<string>>

/** For one name. */
const lookupSecondsMax = 20

/** As curl asks: this host's own names, then its name service. */
const systemLookup: Lookup = async (hostname) =>
  (await lookup(hostname, { all: true })).map(({ address }) => address)

/** With a proxy, the proxy resolves names and decides where they may lead; git then speaks to the proxy only. */
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
  // An address is decided about whoever connects to it.
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

/** Of every interface, also those whose addresses are public. */
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
  detail: "has an address that is private, or this host's own",
  remedy: "If it is meant to, let the operator name it with private addresses (COGNI_FORGES=HOST=private)"
})
