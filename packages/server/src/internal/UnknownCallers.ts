/**
 * Limits how often the store is asked about unknown tokens.
 *
 * A token that was found is remembered by its hash, so that requests with unknown tokens do not slow it down. It is
 * still looked up each time, so that a revocation takes effect immediately. Requests with unknown tokens share a bucket
 * with those of similar addresses. Both structures have a fixed maximum size.
 */
import { Hash, Result } from "effect"
import { NetAddress } from "effect/net"

/** Maximum number of remembered token hashes. The least recently used one is evicted. */
const knownMax = 10_000

/** Number of buckets for all addresses: so many that two callers seldom share one. */
export const buckets = 1024

export interface KnownTokens {
  readonly has: (hash: string) => boolean
  readonly add: (hash: string) => void
  readonly remove: (hash: string) => void
}

export const make = (max: number = knownMax): KnownTokens => {
  const hashes = new Set<string>()
  return {
    has: (hash) => hashes.has(hash),
    add: (hash) => {
      hashes.delete(hash)
      hashes.add(hash)
      const [oldest] = hashes
      if (hashes.size > max && oldest !== undefined) hashes.delete(oldest)
    },
    remove: (hash) => void hashes.delete(hash)
  }
}

/**
 * Returns the address of a caller. A trusted proxy appends the address that it saw to `X-Forwarded-For`. The caller may
 * have written the addresses before that.
 */
export const callerOf = (
  remote: string | undefined,
  forwardedFor: string | undefined,
  trusted: ReadonlySet<string>
): string | undefined => {
  const hops = [...(forwardedFor ?? "").split(",").map((hop) => hop.trim()), remote ?? ""]
  const isTrusted = (hop: string) => trusted.has(canonicalOf(hop) ?? "")
  const caller = hops.findLast((hop) => !isTrusted(hop)) ?? remote
  // A proxy may name something else than an address.
  return caller === undefined || canonicalOf(caller) === undefined ? remote : caller
}

/** Returns an IP address in its shortest form. `undefined`: it is not one. */
export const canonicalOf = (text: string): string | undefined => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return address && NetAddress.formatIp(NetAddress.toCanonical(address))
}

/** Returns the bucket of an address. An IPv6 /64 is one bucket, because one user usually has a whole /64. */
export const bucketOf = (address: string | undefined): number =>
  Math.abs(Hash.string(networkOf(address ?? ""))) % buckets

const networkOf = (text: string): string => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  if (address === undefined) return "unknown"
  const canonical = NetAddress.toCanonical(address)
  return NetAddress.isIpv6Address(canonical)
    ? NetAddress.ipv6ToSegments(canonical).slice(0, 4).join(":")
    : NetAddress.formatIp(canonical)
}
