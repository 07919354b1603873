/**
 * Hostile outputs of an export instead of a bundle: anything that a program under an agent's control can write.
 *
 * Streams are lazy, because some have no end. Each is made from a repository's base, a commit on it, and a bundle of
 * both.
 */
import { constants, deflateRawSync } from "node:zlib"
import { commitBytes, encode, treeBytes } from "./Making.ts"
import {
  copies,
  offset,
  pack,
  packedHeader,
  packedObject,
  packPieces,
  packStart,
  sealed,
  varied,
  varint,
  type Packed
} from "./Pack.ts"
import {
  type Bytes,
  endless,
  headed,
  header,
  type HostileStream,
  join,
  packed,
  packOf,
  pieces,
  refused,
  stalled,
  tipped
} from "./StreamParts.ts"

export type { HostileStream, StreamContext } from "./StreamParts.ts"

const nothing: ReadonlyArray<HostileStream> = [
  refused("nothing", () => new Uint8Array(0)),
  refused("nothing, from a killed program", () => new Uint8Array(0), { exitCode: 137 }),
  refused("garbage", () => varied(1, 4096)),
  refused("endless zeros", () => endless(Buffer.alloc(1 << 16))),
  refused("an endless header line", () =>
    endless(Buffer.alloc(1 << 16, "a"), Buffer.from("# v2 git bundle\n-"))
  ),
  refused("endless header lines", ({ base }) =>
    endless(Buffer.from(`-${base}\n`.repeat(1000)), Buffer.from("# v2 git bundle\n"))
  ),
  refused("a header of 5 KiB", (context) =>
    join(header(context, { prerequisites: [`-${context.base} ${"x".repeat(5 * 1024)}`] }), packOf(context))
  ),
  refused("one byte, then a stall", () => stalled(Buffer.from("#"))),
  refused("half a bundle, then a stall", ({ goodBundle }) =>
    stalled(goodBundle.subarray(0, goodBundle.length >> 1))
  ),
  refused("a complete bundle, then a stall", ({ goodBundle }) => stalled(goodBundle), { bringsTip: true }),
  refused("endless bytes, one at a time", () =>
    (async function* () {
      for (;;) {
        yield Buffer.from("#")
        await new Promise((resolve) => {
          setTimeout(resolve, 20).unref()
        })
      }
    })()
  )
]

const headers: ReadonlyArray<HostileStream> = [
  headed("version 1", () => ({ signature: "# v1 git bundle" })),
  headed("version 3 with a filter", () => ({ signature: "# v3 git bundle\n@filter=blob:none" })),
  headed("version 3 with another object format", () => ({
    signature: "# v3 git bundle\n@object-format=sha256"
  })),
  headed("version 3 with an unknown capability", () => ({ signature: "# v3 git bundle\n@evil=1" })),
  headed("two refs", ({ branch, tip }) => ({
    refs: [`${tip} refs/heads/${branch}`, `${tip} refs/heads/main`]
  })),
  headed("the same ref twice", ({ base, branch, tip }) => ({
    refs: [`${tip} refs/heads/${branch}`, `${base} refs/heads/${branch}`]
  })),
  headed("another ref", ({ tip }) => ({ refs: [`${tip} refs/heads/main`] })),
  headed("HEAD as its ref", ({ tip }) => ({ refs: [`${tip} HEAD`] })),
  headed("no ref", () => ({ refs: [] })),
  headed("a ref with .. in it", ({ tip }) => ({ refs: [`${tip} refs/heads/sandbox/../../main`] })),
  headed("a ref that is a path", ({ tip }) => ({ refs: [`${tip} /etc/passwd`] })),
  headed("a ref with a line break", ({ branch, tip }) => ({
    refs: [`${tip} refs/heads/${branch}\n${tip} refs/heads/evil`]
  })),
  headed("a ref with a NUL", ({ branch, tip }) => ({ refs: [`${tip} refs/heads/${branch}\0evil`] })),
  headed("a ref with a trailing space", ({ branch, tip }) => ({ refs: [`${tip} refs/heads/${branch} `] })),
  headed("a truncated ID", ({ branch, tip }) => ({
    refs: [`${tip.slice(0, 12)} refs/heads/${branch}`]
  })),
  headed("another prerequisite", () => ({ prerequisites: [`-${"6".repeat(40)}`] })),
  headed("an additional prerequisite", ({ base }) => ({
    prerequisites: [`-${base}`, `-${"6".repeat(40)}`]
  })),
  {
    ...headed("a prerequisite twice", ({ base }) => ({ prerequisites: [`-${base}`, `-${base}`] })),
    wants: "unharmed"
  },
  headed("a NUL in the header", ({ base }) => ({ prerequisites: [`-${base} a\0b`, "\0"] })),
  refused("CRLF line ends", (context) =>
    join(Buffer.from(header(context).toString("latin1").replaceAll("\n", "\r\n")), packOf(context))
  ),
  refused("a header alone", (context) => header(context)),
  refused("the base as its ref", (context) =>
    join(header(context, { refs: [`${context.base} refs/heads/${context.branch}`] }), pack([]))
  )
]

const truncated = [0, 8, 16, 40, 57, 150].map((at) =>
  refused(`truncated after ${at} bytes`, ({ goodBundle }) => goodBundle.subarray(0, at))
)

const fromEnd = [1, 20, 21, 60].map((at) =>
  refused(`truncated by ${at} bytes`, ({ goodBundle }) => goodBundle.subarray(0, -at))
)

/** Defines a pack with a false object count. */
const counted = (name: string, of: (count: number) => number) =>
  packed(name, (context) => {
    const changed = Buffer.from(packOf(context))
    changed.writeUInt32BE(of(changed.readUInt32BE(8)), 8)
    return sealed(changed.subarray(0, -20))
  })

const blob = (text: string): Packed => ({ type: "blob", body: Buffer.from(text) })

const packs: ReadonlyArray<HostileStream> = [
  ...truncated,
  ...fromEnd,
  counted("a pack with an object count of 4,000,000,000", () => 4_000_000_000),
  counted("a pack with an object count that is too high", (count) => count + 5),
  counted("a pack with an object count that is too low", (count) => count - 1),
  packed("a wrong checksum", (context) => {
    const changed = Buffer.from(packOf(context))
    changed[changed.length - 1]! ^= 1
    return changed
  }),
  packed("a changed byte", (context) => {
    const changed = Buffer.from(packOf(context))
    changed[changed.length >> 1]! ^= 0x40
    return changed
  }),
  packed("a pack of version 4", (context) => {
    const changed = Buffer.from(packOf(context))
    changed.writeUInt32BE(4, 4)
    return sealed(changed.subarray(0, -20))
  }),
  packed("a pack signature in lower case", (context) =>
    join(Buffer.from("pack"), packOf(context).subarray(4))
  ),
  packed("a pack without the tip", () => pack([blob("no commit\n")])),
  packed("a tip whose tree is missing", (context) => {
    const body = commitBytes({ tree: "7".repeat(40), parents: [context.base] })
    return pack([{ type: "commit", body }])
  }),
  refused("a commit whose tree is missing", (context) => {
    const body = commitBytes({ tree: "7".repeat(40), parents: [context.base] })
    const { id } = encode("commit", body)
    const head = header(context, { refs: [`${id} refs/heads/${context.branch}`] })
    return join(head, pack([{ type: "commit", body }]))
  }),
  refused("a commit without its parent", (context) => {
    const body = commitBytes({ tree: encode("tree", Buffer.alloc(0)).id, parents: ["8".repeat(40)] })
    const { id } = encode("commit", body)
    const head = header(context, { refs: [`${id} refs/heads/${context.branch}`] })
    return join(
      head,
      pack([
        { type: "commit", body },
        { type: "tree", body: Buffer.alloc(0) }
      ])
    )
  }),
  tipped("a tip that is a blob", "blob", () => Buffer.from("blob\n")),
  tipped("a tip that is a tree", "tree", () =>
    treeBytes([{ mode: "100644", name: "a", id: encode("blob", Buffer.from("a")).id }])
  ),
  tipped("a tip that is a tag", "tag", ({ base }) =>
    Buffer.from(`object ${base}\ntype commit\ntag t\ntagger A <a@example.invalid> 1 +0000\n\nt\n`)
  ),
  packed("a thin pack with a missing base", () =>
    pack([{ type: "ref-delta", base: "9".repeat(40), body: copies(1 << 16, 1 << 16) }])
  ),
  packed("a delta that begins before the pack", () =>
    pack([blob("a"), { type: "ofs-delta", base: offset(5000), body: copies(1, 1) }])
  ),
  packed("a delta on itself", () =>
    pack([blob("a"), { type: "ofs-delta", base: offset(0), body: copies(1, 1) }])
  ),
  packed("an object without a type", () => pack([{ type: "none", body: Buffer.from("x") }])),
  packed("an object of a reserved type", () => pack([{ type: "reserved", body: Buffer.from("x") }])),
  packed("an object longer than its header states", () =>
    pack([{ type: "blob", body: Buffer.alloc(5000, "x"), size: 5 }])
  ),
  packed("an object shorter than its header states", () =>
    pack([{ type: "blob", body: Buffer.from("xxxxx"), size: 5000 }])
  ),
  packed("an object with a stated size of 2^60 bytes", () =>
    pack([{ type: "blob", body: Buffer.from("x"), size: 2 ** 60 }])
  )
]

const seed: Packed = { type: "blob", body: Buffer.alloc(1 << 16, 7) }
const seedId = encode("blob", seed.body).id

/** Compressed block of 4 MiB of zeros that can be repeated. */
const zeros = () => deflateRawSync(Buffer.alloc(1 << 22), { finishFlush: constants.Z_FULL_FLUSH })

/** Generates `count` objects lazily. */
function* numbered(count: number, body: (index: number) => Buffer): Iterable<Uint8Array> {
  for (let index = 0; index < count; index++)
    yield packedObject({ type: "blob", body: body(index), stored: true })
}

/** Generates a chain of deltas, each on the one before. A delta inserts ten bytes and copies none. */
function* chain(depth: number): Iterable<Uint8Array> {
  const first = packedObject({ ...blob("0123456789"), stored: true })
  yield first
  let last = first.length
  for (let index = 0; index < depth; index++) {
    const delta = join(Buffer.from([10, 10, 10]), Buffer.from(String(index).padStart(10, "0")))
    const made = packedObject({ type: "ofs-delta", base: offset(last), body: delta, stored: true })
    yield made
    last = made.length
  }
}

/** Defines a pack that is generated lazily. */
const large = (name: string, count: number, objects: () => Iterable<Uint8Array>) =>
  refused(name, (context) =>
    pieces(
      (function* () {
        yield header(context)
        yield* packPieces(count, objects())
      })()
    )
  )

const doubling = (): ReadonlyArray<Packed> => {
  const made: Array<Packed> = [seed]
  let last = packedObject(seed).length
  for (let size = 1 << 16; size < 2 ** 34; size *= 2) {
    // Copies the complete base twice, in pieces of at most 16 MiB.
    const step = Math.min(size, 0xffffff)
    const one: Array<Buffer> = []
    for (let at = 0; at < size; at += step) {
      const count = Math.min(step, size - at)
      const bytes = Buffer.alloc(8)
      bytes[0] = 0xff
      bytes.writeUInt32LE(at % 2 ** 32, 1)
      bytes.writeUIntLE(count, 5, 3)
      one.push(bytes)
    }
    const body = join(varint(size), varint(size * 2), ...one, ...one)
    const next: Packed = { type: "ofs-delta", base: offset(last), body }
    made.push(next)
    last = packedObject(next).length
  }
  return made
}

const bombs: ReadonlyArray<HostileStream> = [
  packed("a delta of 24 GiB", () =>
    pack([seed, { type: "ref-delta", base: seedId, body: copies(1 << 16, 24 * 2 ** 30) }])
  ),
  packed("a hundred deltas of 400 MiB", () =>
    pack([
      seed,
      ...Array.from({ length: 100 }, (_, index) => ({
        type: "ref-delta" as const,
        base: seedId,
        body: copies(1 << 16, 400 * 2 ** 20 + index * 2 ** 16)
      }))
    ])
  ),
  packed("deltas that double to 16 GiB", () => pack(doubling())),
  refused("a blob of 8 GiB of zeros", (context) => {
    const zero = zeros()
    const start = join(
      header(context),
      packStart(1),
      packedHeader("blob", 2 ** 33),
      Buffer.from([0x78, 0x9c])
    )
    return pieces([start, ...Array<Buffer>(2048).fill(zero), Buffer.alloc(26)])
  }),
  refused("an endless blob", (context) => {
    const start = join(
      header(context),
      packStart(1),
      packedHeader("blob", 2 ** 50),
      Buffer.from([0x78, 0x9c])
    )
    const random = varied(2, 0xffff)
    const block = join(Buffer.from([0, 0xff, 0xff, 0, 0]), random)
    return endless(block, start)
  }),
  large("70,000 objects", 70_000, () => numbered(70_000, (index) => Buffer.from(`${index}`))),
  large("a chain of 50,000 deltas", 50_001, () => chain(50_000)),
  large("100 MB of noise in blobs", 1600, () => {
    const noise = varied(4, 65_000)
    return numbered(1600, (index) => join(Buffer.from(`${index}`), noise))
  })
]

const good: Bytes = ({ goodBundle }) => goodBundle

const around: ReadonlyArray<HostileStream> = [
  refused("a valid bundle, and exit code 3", good, {
    exitCode: 3,
    stderr: "fatal: too late\n",
    bringsTip: true
  }),
  refused("a valid bundle, and a signal", good, { exitCode: 137, bringsTip: true }),
  {
    name: "a valid bundle, then garbage",
    wants: "unharmed",
    bytes: ({ goodBundle }) => join(goodBundle, varied(3, 5000))
  },
  {
    name: "two valid bundles",
    wants: "unharmed",
    bytes: ({ goodBundle }) => join(goodBundle, goodBundle)
  },
  {
    name: "a valid bundle, and escape sequences on stderr",
    wants: "delivered",
    bytes: good,
    stderr: "\u001b]0;owned\u0007warning: nothing\n".repeat(2000)
  }
]

/** Stream that must be accepted. */
export const control: HostileStream = { name: "a valid bundle", wants: "delivered", bytes: good }

export const streams: ReadonlyArray<HostileStream> = [...nothing, ...headers, ...packs, ...bombs, ...around]
