/**
 * How often the store is asked about tokens that it may not know.
 *
 * A token that was found is remembered by its hash, and is not slowed down by others that were not; it is looked up all
 * the same, so that a revocation holds at once. Everything else takes from a bucket that it shares with addresses like
 * its own. Both are bounded: what is sent makes nothing here grow.
 */
import { Hash, Result } from "effect"
import { NetAddress } from "effect/net"

/** Hashes of tokens that were found last. */
export const knownMax = 10_000

/** Buckets of all addresses together. */
export const buckets = 64

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

/** The bucket of an address. One holder of an IPv6 address holds its whole /64, so that is one bucket. */
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
