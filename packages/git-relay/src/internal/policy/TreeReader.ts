/** Reads the trees of a repository, each only after its size is known, and only as many as a budget allows. */
import { Effect, Result } from "effect"
import type { Policy } from "../../CommitPolicy.ts"
import type { ObjectFormat } from "../../Refs.ts"
import type { Found } from "./CommitRules.ts"
import * as GitObject from "../git/GitObject.ts"
import type { ObjectReader } from "../git/ObjectReader.ts"

export type TreeReader<E> = ReturnType<typeof make<E>>

/** Maximum bytes of cached listings. The same few are read again and again. */
const keptBytesMax = 8 * 1024 * 1024

export const make = <E>(
  reader: ObjectReader<E>,
  format: ObjectFormat,
  { treeBytesMax, treesBytesMax, treesMax }: Policy
) => {
  /** Bytes of each tree; `undefined` if it is missing or not a tree. */
  const sizes = new Map<string, number | undefined>()
  const kept = new Map<string, ReadonlyArray<GitObject.TreeEntry>>()
  let [keptBytes, visited, bytesRead] = [0, 0, 0]

  const keep = (id: string, entries: ReadonlyArray<GitObject.TreeEntry>, bytes: number) => {
    if (bytes > keptBytesMax) return
    kept.set(id, entries)
    keptBytes += bytes
    for (const oldest of kept.keys()) {
      if (keptBytes <= keptBytesMax) return
      kept.delete(oldest)
      keptBytes -= sizes.get(oldest) ?? 0
    }
  }

  /** Returns an announced tree, or why it cannot be read. */
  const read = Effect.fnUntraced(function* (id: string) {
    const known = kept.get(id)
    if (known !== undefined) return Result.succeed(known)
    const bytes = sizes.get(id)
    if (bytes === undefined) return fault("object", `the directory ${id} is missing or is not a directory`)
    if (bytes > treeBytesMax)
      return fault("tree-bytes", `a directory's listing has ${bytes} bytes, and ${treeBytesMax} are allowed`)
    bytesRead += bytes
    if (bytesRead > treesBytesMax)
      return fault("tree-bytes", `the listings of directories have more than ${treesBytesMax} bytes in all`)
    const content = yield* reader.content(id)
    const entries = content === undefined ? undefined : GitObject.parseTree(content, format)
    if (entries === undefined) return fault("object", `the directory ${id} is malformed`)
    keep(id, entries, bytes)
    return Result.succeed(entries)
  })

  return {
    /**
     * Counts trees against the budget, even if they were read before. Returns `undefined` while the budget allows it.
     */
    visit: (trees: number): Found | undefined => {
      visited += trees
      return visited > treesMax
        ? { rule: "trees", detail: `more than ${treesMax} directories have to be compared` }
        : undefined
    },
    /** Requests the sizes of many trees at once, before any of them is read. */
    announce: (ids: ReadonlyArray<string>): Effect.Effect<void, E> => {
      const unknown = [...new Set(ids)].filter((id) => !sizes.has(id))
      return unknown.length === 0
        ? Effect.void
        : Effect.map(reader.info(unknown), (infos) => {
            for (const [index, id] of unknown.entries()) {
              const info = infos[index]
              sizes.set(id, info?.type === "tree" ? info.bytes : undefined)
            }
          })
    },
    read
  }
}

/** Returns the blobs of a whole tree, or fewer if it is larger than the budget. */
export const blobsOf = Effect.fnUntraced(function* <E>(trees: TreeReader<E>, root: string) {
  const blobs = new Set<string>()
  const seen = new Set<string>([root])
  for (let level: ReadonlyArray<string> = [root]; level.length > 0;) {
    if (trees.visit(level.length) !== undefined) return blobs
    yield* trees.announce(level)
    const next: Array<string> = []
    for (const id of level) {
      const read = yield* trees.read(id)
      if (Result.isFailure(read)) continue
      for (const entry of read.success) {
        const kind = GitObject.kindOf(entry.mode)
        if (kind === "file" || kind === "symlink") blobs.add(entry.id)
        if (kind !== "tree" || seen.has(entry.id)) continue
        seen.add(entry.id)
        next.push(entry.id)
      }
    }
    level = next
  }
  return blobs
})

const fault = (rule: Found["rule"], detail: string) => Result.fail<Found>({ rule, detail })
