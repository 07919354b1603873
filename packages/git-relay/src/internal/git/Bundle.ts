/**
 * Parser for the header of a git bundle, which an agent may have written. Pure.
 *
 *     # v2 git bundle            for SHA-1; for SHA-256: `# v3 git bundle` and `@object-format=sha256`
 *     -<commit> <any text>       prerequisite, which the host must have
 *     <commit> <reference>       tip
 *                                an empty line, then the pack: `PACK`, its version, its number of objects
 *
 * git opens only bundles that this parser accepts. `index-pack --strict` checks the contents of the pack.
 *
 * @see {@link https://git-scm.com/docs/gitformat-bundle}
 */
import { Result } from "effect"
import { CommitId, type ObjectFormat } from "../../Refs.ts"

/** Requirements for a bundle. */
export interface BundleExpectation {
  readonly objectFormat: ObjectFormat
  /** The only reference that it may contain. */
  readonly ref: string
  /** Commits that the host has. Every prerequisite must be one of them. */
  readonly prerequisites: ReadonlySet<string>
  readonly objectsMax: number
}

interface BundleHeader {
  readonly tip: CommitId
  readonly objects: number
  /** Byte offset of the pack. */
  readonly packOffset: number
}

/** Maximum size of a header. A valid header has one or two lines. */
export const headerBytesMax = 4096

const packHeaderBytes = 12

/** Collects pieces until the header is complete, then returns it or the reason for its refusal. */
export const makeReader = (expected: BundleExpectation) => {
  const room = Buffer.alloc(headerBytesMax + packHeaderBytes)
  let length = 0
  return {
    /** Returns `undefined` if more bytes are needed. */
    push: (piece: Uint8Array): Result.Result<BundleHeader, string> | undefined => {
      const taken = piece.subarray(0, room.byteLength - length)
      room.set(taken, length)
      length += taken.byteLength
      const so = room.subarray(0, length)
      const blank = so.indexOf("\n\n")
      const end = blank === -1 ? -1 : blank + 2
      if (end === -1 || end > headerBytesMax) {
        if (!beginsWell(so, expected)) return Result.fail("it is not a git bundle")
        return length > headerBytesMax
          ? Result.fail(`its header is longer than ${headerBytesMax} bytes`)
          : undefined
      }
      if (length < end + packHeaderBytes) return undefined
      return Result.flatMap(headerOf(so.subarray(0, end - 1), expected), (tip) =>
        Result.map(objectsOf(so.subarray(end), expected), (objects) => ({ tip, objects, packOffset: end }))
      )
    },
    /** Returns why a stream that ends here is refused. */
    end: () => (length === 0 ? "it is empty" : "it ends before its pack begins")
  }
}

const signatureOf = ({ objectFormat }: BundleExpectation): string =>
  objectFormat === "sha1" ? "# v2 git bundle\n" : "# v3 git bundle\n@object-format=sha256\n"

const beginsWell = (bytes: Buffer, expected: BundleExpectation): boolean => {
  const signature = signatureOf(expected)
  const length = Math.min(bytes.byteLength, signature.length)
  return bytes.toString("latin1", 0, length) === signature.slice(0, length)
}

/** Parses all lines up to the empty one. Each ends with a newline. */
const headerOf = (bytes: Buffer, expected: BundleExpectation): Result.Result<CommitId, string> => {
  const signature = signatureOf(expected)
  if (!beginsWell(bytes, expected) || bytes.byteLength < signature.length)
    return Result.fail("it is not a git bundle with the object format of the repository")
  const digits = expected.objectFormat === "sha1" ? 40 : 64
  const pattern = new RegExp(`^(-?)([0-9a-f]{${digits}})(.*)$`, "su")
  let tip: string | undefined
  for (const line of bytes.toString("latin1", signature.length).split("\n").slice(0, -1)) {
    const [, sign, id, rest = ""] = pattern.exec(line) ?? []
    if (id === undefined) return Result.fail("its header has an invalid line")
    if (sign === "-") {
      if (tip !== undefined) return Result.fail("its header has a prerequisite after a reference")
      if (rest !== "" && !rest.startsWith(" ")) return Result.fail("its header has an invalid line")
      if (!expected.prerequisites.has(id))
        return Result.fail(`it builds on ${id}, which the relay does not have`)
    } else {
      if (tip !== undefined) return Result.fail("it contains more than one reference")
      if (rest !== ` ${expected.ref}`)
        return Result.fail(`it contains a reference other than ${expected.ref}`)
      tip = id
    }
  }
  return tip === undefined ? Result.fail("it contains no reference") : Result.succeed(CommitId.make(tip))
}

const objectsOf = (pack: Buffer, { objectsMax }: BundleExpectation): Result.Result<number, string> => {
  if (pack.toString("latin1", 0, 4) !== "PACK") return Result.fail("no pack follows its header")
  const version = pack.readUInt32BE(4)
  if (version !== 2) return Result.fail(`its pack has version ${version}`)
  const objects = pack.readUInt32BE(8)
  return objects > objectsMax
    ? Result.fail(`it contains ${objects} objects, more than the ${objectsMax} that are allowed`)
    : Result.succeed(objects)
}
