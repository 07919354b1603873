/**
 * Options of the package mirror: the registries that sandboxes may install from, and its limits.
 *
 * The mirror is a part of the gateway. A run gets the packages that its spec names, and nothing else leaves the host:
 * no credential, no header, no query, and no name that is not allowed.
 */
import type { EgressProxy } from "./EgressProxy.ts"

/** A registry, as the host reaches it. */
export interface RegistryOptions {
  /**
   * Base URL without a credential. For npm as in `npm config get registry`, for PyPI that of its simple index
   * (`…/simple`), for cargo that of its sparse index.
   */
  readonly url: string
  /** Origins of other hosts that serve its files, such as `https://files.example.com` (default none). */
  readonly fileOrigins?: ReadonlyArray<string> | undefined
  /** Whether its names may resolve to private addresses, for a registry within a company (default false). */
  readonly allowPrivateAddresses?: boolean | undefined
}

export interface PackageMirrorOptions {
  readonly npm?: RegistryOptions | undefined
  readonly pypi?: RegistryOptions | undefined
  readonly cargo?: RegistryOptions | undefined
  /** Directory in which files are kept, by the hash that their registry states. Absent: nothing is kept. */
  readonly cacheDirectory?: string | undefined
  /** Bytes of the files that are kept (default 4 GiB). The longest unused ones are removed first. */
  readonly cacheBytesMax?: number | undefined
  /** HTTP proxy between this host and the registries, for those with https (default: the gateway's own). */
  readonly egressProxy?: EgressProxy | undefined
  /** Size of one file of a package (default 512 MiB). */
  readonly fileBytesMax?: number | undefined
  /** Size of the metadata of one package, without compression (default 64 MiB). */
  readonly metadataBytesMax?: number | undefined
  /** Bytes that one run may fetch (default 8 GiB). */
  readonly runBytesMax?: number | undefined
  /** Bytes per second of one run (default 64 MiB). */
  readonly bytesPerSecondMax?: number | undefined
  /** Requests that one run may have in progress (default 16). More wait. */
  readonly concurrentMax?: number | undefined
  /** A registry that sends nothing for this time is given up, in seconds (default 30). */
  readonly silentSecondsMax?: number | undefined
}
