/** Commits that are cheap to write and expensive to read. */
import { writeFileSync } from "node:fs"
import { deflateRawSync, constants } from "node:zlib"
import type { Context, Workspace } from "./Corpus.ts"
import {
  commit,
  configure,
  encode,
  git,
  gitWith,
  inGit,
  object,
  point,
  put,
  rawCommit,
  tree,
  withEntries
} from "./Making.ts"
import { copies, pack } from "./Pack.ts"

const refused = (
  name: string,
  attack: "content" | "denial",
  make: (context: Context) => Promise<string>
): Workspace => ({ name, attack, wants: "refused", make })

/** Runs `git fast-import` on the branch, and returns the new tip. */
const imported = async (context: Context, text: string): Promise<string> => {
  await gitWith(context, { input: text }, "fast-import", "--quiet", "--force")
  await git(context, "reset", "-q", "--mixed")
  return git(context, "rev-parse", "HEAD")
}

const header = ({ base, branch }: Context, first = true) =>
  `commit refs/heads/${branch}
committer Agent <agent@example.invalid> 1760000000 +0000
data 5
Many
${first ? `from ${base}\n` : ""}`

const filesOf = (context: Context, count: number) =>
  header(context) +
  Array.from(
    { length: count },
    (_, index) => `M 100644 inline many/${index % 250}/${index}.txt\ndata 1\nx\n`
  ).join("")

/** Writes nested trees, each with `width` entries for the same subtree, and returns the ID of the top tree. */
const treeBomb = (context: Context, depth: number, width: number): string => {
  let id = object(context, "blob", "boom\n")
  for (let level = 0; level < depth; level++) {
    const mode = level === 0 ? "100644" : "40000"
    const inner = id
    id = tree(
      context,
      Array.from({ length: width }, (_, index) => ({ mode, name: `d${index}`, id: inner }))
    )
  }
  return id
}

const MiB = 1 << 20

/** IDs of blobs of zeros by size. Precomputed, because that takes as long as reading them. */
const zeroIds: ReadonlyMap<number, string> = new Map([
  [64 * MiB, "51c513d36451ab389b5b3e9bca9b478b84a2e2ce"],
  [2048 * MiB, "77e9132b46cb9535f286f18974872f40049d1a89"]
])

/** Writes a loose blob of zeros, which compresses to a small file, and returns its ID. */
const zeros = (context: Context, bytes: number): string => {
  const piece = Buffer.alloc(4 * MiB)
  const head = Buffer.from(`blob ${bytes}\0`)
  let sum = { a: 1, b: 0 }
  for (const byte of head) sum = { a: (sum.a + byte) % 65_521, b: (sum.b + sum.a + byte) % 65_521 }
  // Adler-32 of zeros: the first sum stays the same, and each byte adds it to the second sum.
  const b = Number((BigInt(sum.b) + BigInt(bytes) * BigInt(sum.a)) % 65_521n)
  const tail = Buffer.alloc(4)
  tail.writeUInt32BE(((b << 16) | sum.a) >>> 0)
  const flushed = { finishFlush: constants.Z_FULL_FLUSH }
  const zero = deflateRawSync(piece, flushed)
  const id = zeroIds.get(bytes)!
  const repeated = Array<Buffer>(bytes / piece.length).fill(zero)
  put(
    context,
    `.git/objects/${id.slice(0, 2)}/${id.slice(2)}`,
    Buffer.concat([
      Buffer.from([0x78, 0x9c]),
      deflateRawSync(head, flushed),
      ...repeated,
      Buffer.from([3, 0]),
      tail
    ])
  )
  return id
}

/** Size and ID of a blob of 700 MiB of the byte 7. */
const sevens = { bytes: 700 * MiB, id: "ef66b0fcfaaaa962055d5d406a2d2c6fd2188b59" }

/** Writes a pack with a delta of a few kilobytes that expands to 700 MiB, and commits the blob. */
const deltaBomb = async (context: Context): Promise<string> => {
  const seed = Buffer.alloc(1 << 16, 7)
  const packed = pack([
    { type: "blob", body: seed },
    { type: "ref-delta", base: encode("blob", seed).id, body: copies(seed.length, sevens.bytes) }
  ])
  const path = inGit(context, "objects/pack/bomb.pack")
  writeFileSync(path, packed)
  await git(context, "index-pack", path)
  return withEntries(context, [{ mode: "100644", name: "bomb", id: sevens.id }])
}

export const bombs: ReadonlyArray<Workspace> = [
  refused("a blob of 64 MiB", "content", async (context) =>
    withEntries(context, [{ mode: "100644", name: "large.bin", id: zeros(context, 64 * MiB) }])
  ),
  refused("a blob of 2 GiB", "denial", async (context) =>
    withEntries(context, [{ mode: "100644", name: "large.bin", id: zeros(context, 2048 * MiB) }])
  ),
  refused("a delta bomb", "denial", deltaBomb),
  refused("a tree bomb", "denial", async (context) =>
    withEntries(context, [{ mode: "40000", name: "bomb", id: treeBomb(context, 12, 10) }])
  ),
  refused("a thousand levels of directories", "content", async (context) =>
    withEntries(context, [{ mode: "40000", name: "deep", id: treeBomb(context, 1000, 1) }])
  ),
  refused("600 commits", "content", (context) =>
    imported(context, Array.from({ length: 600 }, (_, index) => header(context, index === 0)).join(""))
  ),
  refused("5,000 files", "content", (context) => imported(context, filesOf(context, 5000))),
  refused("50,000 files", "content", (context) => imported(context, filesOf(context, 50_000))),
  refused("240 MB in blobs of 400 KB", "content", async (context) => {
    // Without it, git would compare each blob with ten others.
    configure(context, "[pack]\n\twindow = 0")
    const zeros = Buffer.alloc(400_000)
    for (let index = 1; index <= 600; index++)
      put(context, `many/${index}`, Buffer.concat([Buffer.from(`${index}\n`), zeros]))
    return commit(context, "Many")
  }),
  refused("600 commits behind the second parent of a merge", "content", async (context) => {
    const chain = [context.base]
    const top = await git(context, "rev-parse", `${context.base}^{tree}`)
    for (let index = 0; index < 600; index++) {
      chain.push(rawCommit(context, { tree: top, parents: [chain.at(-1)!], message: `Number ${index}` }))
    }
    const id = rawCommit(context, { tree: top, parents: [context.base, chain.at(-1)!], message: "Merge" })
    point(context, id)
    return id
  })
]
