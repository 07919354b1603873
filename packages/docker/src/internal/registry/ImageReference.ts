/**
 * Parses the reference of an image that names its content: `[HOST/]REPOSITORY@sha256:DIGEST`. Pure.
 *
 * A reference with only a tag is refused: a tag can be moved to other content at any time.
 */

export interface ImageReference {
  /** The repository as the engine names it, such as `ghcr.io/acme/agent`. */
  readonly name: string
  /** Address of the registry, such as `https://ghcr.io`. */
  readonly origin: string
  /** Path of the repository in its registry, such as `acme/agent`. */
  readonly repository: string
  /** Digest of the manifest, as `sha256:` and 64 hexadecimal digits. */
  readonly digest: string
}

/** Without a host, a reference is of Docker Hub, whose API has this address. */
const hub = { origin: "https://registry-1.docker.io", host: "docker.io" } as const

const part = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
const pattern = new RegExp(
  `^(?:((?:[a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(?::\\d{1,5})?|[a-zA-Z0-9-]+:\\d{1,5}|localhost|\\[::1\\](?::\\d{1,5})?)/)?(${part}(?:/${part})*)(?::[\\w][\\w.-]{0,127})?@(sha256:[0-9a-f]{64})$`,
  "u"
)

const referenceCharactersMax = 512

/** Engines accept plain HTTP from a registry of this host, and so do we. */
const isLoopback = (host: string): boolean =>
  /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?$/u.test(host)

/** Returns the parts of a reference with a digest, or `undefined`. A tag next to the digest has no effect. */
export const parse = (reference: string): ImageReference | undefined => {
  if (reference.length > referenceCharactersMax) return undefined
  const [, host, path, digest] = pattern.exec(reference) ?? []
  if (path === undefined || digest === undefined) return undefined
  if (host === undefined || host === hub.host) {
    const repository = path.includes("/") ? path : `library/${path}`
    return { name: path, origin: hub.origin, repository, digest }
  }
  return {
    name: `${host}/${path}`,
    origin: `${isLoopback(host) ? "http" : "https"}://${host}`,
    repository: path,
    digest
  }
}
