/**
 * The beginning of a git bundle, read as what it is: bytes that an agent may have written. Pure.
 *
 *     # v2 git bundle            of SHA-1; of SHA-256: `# v3 git bundle` and `@object-format=sha256`
 *     -<commit> <any text>       what must be there already
 *     <commit> <reference>       what it brings
 *                                an empty line, then the pack: `PACK`, its version, how many objects
 *
 * git is asked to open nothing of which this has not approved. What the pack holds is `index-pack --strict`'s to judge.
 *
 * @see {@link https://git-scm.com/docs/gitformat-bundle}
 */
import { Result } from "effect"
import { CommitId, type ObjectFormat } from "../../Refs.ts"

/** What a bundle has to be. */
export interface BundleExpectation {
  readonly objectFormat: ObjectFormat
  /** The only reference that may be in it. */
  readonly ref: string
  /** Commits that the host has; whatever it says must be there is one of them. */
  readonly prerequisites: ReadonlySet<string>
  readonly objectsMax: number
}

export interface BundleHeader {
  readonly tip: CommitId
  readonly objects: number
  /** At which byte the pack begins. */
  readonly packOffset: number
}

/** An honest one has a line or two. */
export const headerBytesMax = 4096

const packHeaderBytes = 12

/** Takes pieces until the header is whole; then answers it, or why it is refused. */
export const makeReader = (expected: BundleExpectation) => {
  const room = Buffer.alloc(headerBytesMax + packHeaderBytes)
  let length = 0
  return {
    /** `undefined`: there must come more. */
    push: (piece: Uint8Array): Result.Result<BundleHeader, string> | undefined => {
      const taken = piece.subarray(0, room.byteLength - length)
      room.set(taken, length)
      length += taken.byteLength
      const so = room.subarray(0, length)
      const blank = so.indexOf("\n\n")
      const end = blank === -1 ? -1 : blank + 2
      if (end === -1 || end > headerBytesMax) {
        if (!beginsWell(so, expected)) return Result.fail("it is no git bundle")
        return length > headerBytesMax
          ? Result.fail(`its header is longer than ${headerBytesMax} bytes`)
          : undefined
      }
      if (length < end + packHeaderBytes) return undefined
      return Result.flatMap(headerOf(so.subarray(0, end - 1), expected), (tip) =>
        Result.map(objectsOf(so.subarray(end), expected), (objects) => ({ tip, objects, packOffset: end }))
      )
    },
    /** There comes no more. */
    end: () => (length === 0 ? "there is nothing in it" : "it ends before its pack begins")
  }
}

const signatureOf = ({ objectFormat }: BundleExpectation): string =>
  objectFormat === "sha1" ? "# v2 git bundle\n" : "# v3 git bundle\n@object-format=sha256\n"

const beginsWell = (bytes: Buffer, expected: BundleExpectation): boolean => {
  const signature = signatureOf(expected)
  const length = Math.min(bytes.byteLength, signature.length)
  return bytes.toString("latin1", 0, length) === signature.slice(0, length)
}

/** Every line, each ended by a newline, up to the empty one. */
const headerOf = (bytes: Buffer, expected: BundleExpectation): Result.Result<CommitId, string> => {
  const signature = signatureOf(expected)
  if (!beginsWell(bytes, expected) || bytes.byteLength < signature.length)
    return Result.fail("it is no git bundle of this kind of repository")
  const digits = expected.objectFormat === "sha1" ? 40 : 64
  const pattern = new RegExp(`^(-?)([0-9a-f]{${digits}})(.*)$`, "su")
  let tip: string | undefined
  for (const line of bytes.toString("latin1", signature.length).split("\n").slice(0, -1)) {
    const [, sign, id, rest = ""] = pattern.exec(line) ?? []
    if (id === undefined) return Result.fail("its header has a line that is none")
    if (sign === "-") {
      if (tip !== undefined) return Result.fail("its header has a prerequisite after a reference")
      if (rest !== "" && !rest.startsWith(" ")) return Result.fail("its header has a line that is none")
      if (!expected.prerequisites.has(id))
        return Result.fail(`it builds on ${id}, which the relay does not have`)
    } else {
      if (tip !== undefined) return Result.fail("it brings more than one reference")
      if (rest !== ` ${expected.ref}`) return Result.fail(`it brings another reference than ${expected.ref}`)
      tip = id
    }
  }
  return tip === undefined ? Result.fail("it brings no reference") : Result.succeed(CommitId.make(tip))
}

const objectsOf = (pack: Buffer, { objectsMax }: BundleExpectation): Result.Result<number, string> => {
  if (pack.toString("latin1", 0, 4) !== "PACK") return Result.fail("no pack follows its header")
  const version = pack.readUInt32BE(4)
  if (version !== 2) return Result.fail(`its pack is of version ${version}`)
  const objects = pack.readUInt32BE(8)
  return objects > objectsMax
    ? Result.fail(`it holds ${objects} objects, more than the ${objectsMax} that are allowed`)
    : Result.succeed(objects)
}
