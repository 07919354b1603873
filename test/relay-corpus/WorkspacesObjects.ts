/** Forged object databases, and damaged repositories. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { dirname } from "node:path"
import { deflateSync } from "node:zlib"
import type { Context, Workspace } from "./Corpus.ts"
import { after, configure, encode, git, inGit, object, point, put, rawCommit, tree, work } from "./Making.ts"

/** Defines a damaged workspace. It does not harm a host, and must be refused with a message or arrive complete. */
const damaged = (name: string, make: Workspace["make"]): Workspace => ({
  name,
  attack: "denial",
  wants: "unharmed",
  make,
  unshown: "git stops with an error, which is harmless"
})

const path = (context: Context, id: string) => inGit(context, `objects/${id.slice(0, 2)}/${id.slice(2)}`)

/** Writes an object under the ID of another. */
const swapped = (context: Context, from: string, type: string, body: string): void => {
  const at = path(context, from)
  mkdirSync(dirname(at), { recursive: true })
  rmSync(at, { force: true })
  writeFileSync(at, deflateSync(encode(type, Buffer.from(body)).bytes))
}

export const objects: ReadonlyArray<Workspace> = [
  {
    name: "a workflow hidden by a forged commit-graph",
    attack: "content",
    wants: "refused",
    make: async (context) => {
      const harmless = await work(context)
      await git(context, "commit-graph", "write", "--reachable")
      const graph = await git(context, "rev-parse", "--git-path", "objects/info/commit-graph")
      put(context, ".github/workflows/steal.yml", "on: push\n")
      const tip = await work(context, "more")
      // The entry of the harmless commit gets the ID of the real tip.
      const file = `${context.repository}/${graph}`
      // Git neither writes nor reads a commit-graph in a shallow repository.
      if (!existsSync(file)) return tip
      const bytes = readFileSync(file)
      const at = bytes.indexOf(Buffer.from(harmless, "hex"))
      Buffer.from(tip, "hex").copy(bytes, at)
      writeFileSync(file, bytes)
      return tip
    }
  },
  {
    name: "a blob stored under the ID of another",
    attack: "content",
    wants: "refused",
    make: (context) => {
      const shown = object(context, "blob", "innocent\n")
      const id = rawCommit(context, {
        tree: tree(context, [{ mode: "100644", name: "a", id: shown }]),
        parents: [context.base]
      })
      point(context, id)
      swapped(context, shown, "blob", "guilty!!\n")
      return id
    },
    unshown: "git verifies what it packs, and detects the wrong ID"
  },
  {
    name: "an index with a false count of a billion entries",
    attack: "denial",
    wants: "unharmed",
    make: after((context) => put(context, ".git/index", Buffer.alloc(70_000, "DIRC\0\0\0\u0002")))
  }
]

export const broken: ReadonlyArray<Workspace> = [
  damaged("a missing blob", (context) => {
    const id = rawCommit(context, {
      tree: tree(context, [{ mode: "100644", name: "a", id: "4".repeat(40) }]),
      parents: [context.base]
    })
    point(context, id)
  }),
  damaged("a truncated tip object", async (context) => {
    const tip = await work(context)
    rmSync(path(context, tip))
    writeFileSync(path(context, tip), deflateSync(Buffer.from("commit 999\0tree ")).subarray(0, 9))
  }),
  damaged(
    "a truncated pack",
    after(async (context) => {
      await git(context, "repack", "-q", "-a", "-d")
      const packs = inGit(context, "objects/pack")
      for (const name of readdirSync(packs)) if (name.endsWith(".pack")) truncateSync(`${packs}/${name}`, 99)
    })
  ),
  damaged(
    "a forged multi-pack-index",
    after((context) => put(context, ".git/objects/pack/multi-pack-index", Buffer.alloc(4096, "MIDX")))
  ),
  damaged(
    "packed-refs with malformed lines",
    after((context) =>
      put(context, ".git/packed-refs", `# pack-refs with: peeled fully-peeled sorted \n^x\n..\n`)
    )
  ),
  damaged(
    "an unsupported repository format version",
    after((context) => configure(context, "[core]\n\trepositoryFormatVersion = 99"))
  ),
  damaged(
    "no remote and no HEAD",
    after((context) => rmSync(inGit(context, "HEAD")))
  )
]
