/** Hashes with which registries state the content of a file. Pure. */

export interface FileHash {
  readonly algorithm: "sha512" | "sha384" | "sha256" | "sha1"
  /** In lower-case hexadecimal. */
  readonly hex: string
}

/** From the strongest to the weakest. */
const algorithms = ["sha512", "sha384", "sha256", "sha1"] as const

const hexLengths = { sha512: 128, sha384: 96, sha256: 64, sha1: 40 } as const

/** Makes a hash from hexadecimal text; `undefined` if the text is not one. */
export const ofHex = (algorithm: FileHash["algorithm"], text: unknown): FileHash | undefined => {
  if (typeof text !== "string") return undefined
  const hex = text.toLowerCase()
  return hex.length === hexLengths[algorithm] && /^[0-9a-f]+$/u.test(hex) ? { algorithm, hex } : undefined
}

/** Reads the strongest hash of a text in the format of Subresource Integrity, such as npm's `dist.integrity`. */
export const ofIntegrity = (text: unknown): FileHash | undefined => {
  if (typeof text !== "string" || text.length > 4096) return undefined
  const stated = text
    .trim()
    .split(/\s+/u)
    .flatMap((token) => {
      const [, algorithm, base64 = ""] =
        /^(sha512|sha384|sha256|sha1)-([A-Za-z0-9+/]+={0,2})(?:\?.*)?$/u.exec(token) ?? []
      return ofHex(algorithm as FileHash["algorithm"], Buffer.from(base64, "base64").toString("hex")) ?? []
    })
  return strongest(stated)
}

/** Reads the strongest hash of a record of hashes in hexadecimal, such as PyPI's `hashes`. */
export const ofRecord = (hashes: unknown): FileHash | undefined =>
  typeof hashes !== "object" || hashes === null
    ? undefined
    : strongest(
        algorithms.flatMap(
          (algorithm) => ofHex(algorithm, (hashes as Record<string, unknown>)[algorithm]) ?? []
        )
      )

const strongest = (hashes: ReadonlyArray<FileHash>): FileHash | undefined =>
  algorithms.flatMap((algorithm) => hashes.filter((hash) => hash.algorithm === algorithm))[0]

/** Whether a file may be kept under this hash. Two files with the same SHA-1 can be made. */
export const isCacheable = ({ algorithm }: FileHash): boolean => algorithm !== "sha1"

/** The hash as one word, for names of files and for the audit. */
export const format = ({ algorithm, hex }: FileHash): string => `${algorithm}-${hex}`
