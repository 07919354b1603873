/**
 * What may come out of an export in the place of a bundle: everything that a program under an agent's control can
 * write.
 *
 * Lazy, because some of it has no end. Each is made from a repository's base, a commit on it, and a bundle of the two.
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
  refused("nothing, and a program that was killed", () => new Uint8Array(0), { exitCode: 137 }),
  refused("garbage", () => varied(1, 4096)),
  refused("zeros without end", () => endless(Buffer.alloc(1 << 16))),
  refused("a header line without end", () =>
    endless(Buffer.alloc(1 << 16, "a"), Buffer.from("# v2 git bundle\n-"))
  ),
  refused("header lines without end", ({ base }) =>
    endless(Buffer.from(`-${base}\n`.repeat(1000)), Buffer.from("# v2 git bundle\n"))
  ),
  refused("a header of 5 KiB", (context) =>
    join(header(context, { prerequisites: [`-${context.base} ${"x".repeat(5 * 1024)}`] }), packOf(context))
  ),
  refused("one byte, and then nothing", () => stalled(Buffer.from("#"))),
  refused("half a bundle, and then nothing", ({ goodBundle }) =>
    stalled(goodBundle.subarray(0, goodBundle.length >> 1))
  ),
  refused("a whole bundle, and then no end", ({ goodBundle }) => stalled(goodBundle), { bringsTip: true }),
  refused("one byte at a time, without end", () =>
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
  headed("version 3 with a capability nobody knows", () => ({ signature: "# v3 git bundle\n@evil=1" })),
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
  headed("a ref with a blank at its end", ({ branch, tip }) => ({ refs: [`${tip} refs/heads/${branch} `] })),
  headed("an id that is cut short", ({ branch, tip }) => ({
    refs: [`${tip.slice(0, 12)} refs/heads/${branch}`]
  })),
  headed("another prerequisite", () => ({ prerequisites: [`-${"6".repeat(40)}`] })),
  headed("one prerequisite more", ({ base }) => ({
    prerequisites: [`-${base}`, `-${"6".repeat(40)}`]
  })),
  {
    ...headed("a prerequisite twice", ({ base }) => ({ prerequisites: [`-${base}`, `-${base}`] })),
    wants: "unharmed"
  },
  headed("a NUL in the header", ({ base }) => ({ prerequisites: [`-${base} a\0b`, "\0"] })),
  refused("line ends of Windows", (context) =>
    join(Buffer.from(header(context).toString("latin1").replaceAll("\n", "\r\n")), packOf(context))
  ),
  refused("a header alone", (context) => header(context)),
  refused("the base as its ref", (context) =>
    join(header(context, { refs: [`${context.base} refs/heads/${context.branch}`] }), pack([]))
  )
]

const truncated = [0, 8, 16, 40, 57, 150].map((at) =>
  refused(`cut short after ${at} bytes`, ({ goodBundle }) => goodBundle.subarray(0, at))
)

const fromEnd = [1, 20, 21, 60].map((at) =>
  refused(`cut short by ${at} bytes`, ({ goodBundle }) => goodBundle.subarray(0, -at))
)

/** How many objects it says it has. */
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
  counted("4,000,000,000 objects, it says", () => 4_000_000_000),
  counted("more objects than it has, it says", (count) => count + 5),
  counted("fewer objects than it has, it says", (count) => count - 1),
  packed("a wrong checksum", (context) => {
    const changed = Buffer.from(packOf(context))
    changed[changed.length - 1]! ^= 1
    return changed
  }),
  packed("a byte that is another", (context) => {
    const changed = Buffer.from(packOf(context))
    changed[changed.length >> 1]! ^= 0x40
    return changed
  }),
  packed("a pack of version 3", (context) => {
    const changed = Buffer.from(packOf(context))
    changed.writeUInt32BE(4, 4)
    return sealed(changed.subarray(0, -20))
  }),
  packed("no pack but its name in another case", (context) =>
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
  packed("a thin pack on nothing", () =>
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
  packed("an object longer than it says", () =>
    pack([{ type: "blob", body: Buffer.alloc(5000, "x"), size: 5 }])
  ),
  packed("an object shorter than it says", () =>
    pack([{ type: "blob", body: Buffer.from("xxxxx"), size: 5000 }])
  ),
  packed("an object of 2^60 bytes, it says", () =>
    pack([{ type: "blob", body: Buffer.from("x"), size: 2 ** 60 }])
  )
]

const seed: Packed = { type: "blob", body: Buffer.alloc(1 << 16, 7) }
const seedId = encode("blob", seed.body).id

/** 4 MiB of zeros, of which one may have as many as one likes. */
const zeros = () => deflateRawSync(Buffer.alloc(1 << 22), { finishFlush: constants.Z_FULL_FLUSH })

/** So many objects, made as they are read. */
function* numbered(count: number, body: (index: number) => Buffer): Iterable<Uint8Array> {
  for (let index = 0; index < count; index++)
    yield packedObject({ type: "blob", body: body(index), stored: true })
}

/** Each begins where the one before ended: insert ten bytes, copy none. */
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

/** A pack that is made while it is read. */
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
    // Twice the whole of what is before it, in pieces of 16 MiB at most.
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
  packed("deltas that double, to 16 GiB", () => pack(doubling())),
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
  refused("a blob without end", (context) => {
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
  refused("a good bundle, and exit code 3", good, {
    exitCode: 3,
    stderr: "fatal: too late\n",
    bringsTip: true
  }),
  refused("a good bundle, and a signal", good, { exitCode: 137, bringsTip: true }),
  {
    name: "a good bundle, and garbage after it",
    wants: "unharmed",
    bytes: ({ goodBundle }) => join(goodBundle, varied(3, 5000))
  },
  {
    name: "two good bundles",
    wants: "unharmed",
    bytes: ({ goodBundle }) => join(goodBundle, goodBundle)
  },
  {
    name: "a good bundle, and complaints that write to terminals",
    wants: "delivered",
    bytes: good,
    stderr: "\u001b]0;owned\u0007warning: nothing\n".repeat(2000)
  }
]

/** What has to come through. */
export const control: HostileStream = { name: "a good bundle", wants: "delivered", bytes: good }

export const streams: ReadonlyArray<HostileStream> = [...nothing, ...headers, ...packs, ...bombs, ...around]
