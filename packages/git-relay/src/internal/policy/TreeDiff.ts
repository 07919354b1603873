/** Compares two trees by their raw listings, one level at a time. Entries with the same ID are not read. */
import { Effect, Result } from "effect"
import { type Change, type Found, pathBytesMax } from "./CommitRules.ts"
import * as GitObject from "../git/GitObject.ts"
import type { TreeReader } from "./TreeReader.ts"

/** Two directories at the same path. One of them may be missing. */
interface Pair {
  readonly path: string
  readonly before: string | undefined
  readonly after: string | undefined
}

export interface TreeDiff<E> {
  readonly trees: TreeReader<E>
  /** Pairs that were already compared. */
  readonly compared: Set<string>
  readonly depthMax: number
  readonly onChange: (change: Change) => void
  /** Reports a fault of the directory itself. */
  readonly onFault: (found: Found, path: string) => void
  /** Whether the comparison must stop. */
  readonly ended: () => boolean
}

export const run = Effect.fnUntraced(function* <E>(diff: TreeDiff<E>, before: string, after: string) {
  const { trees } = diff
  let level: ReadonlyArray<Pair> = before === after ? [] : [{ path: "", before, after }]
  for (let depth = 1; level.length > 0 && !diff.ended(); depth++) {
    const pairs = level.filter((pair) => isNew(diff.compared, pair))
    const [first] = pairs
    if (first === undefined) return
    const ids = pairs.flatMap((pair) => [pair.before, pair.after].filter((id) => id !== undefined))
    const spent =
      depth > diff.depthMax
        ? ({ rule: "depth", detail: `directories are nested deeper than ${diff.depthMax}` } as const)
        : trees.visit(ids.length)
    if (spent !== undefined) return diff.onFault(spent, first.path)
    yield* trees.announce(ids)
    const next: Array<Pair> = []
    for (const pair of pairs) {
      if (diff.ended()) return
      for (const below of yield* compare(diff, pair)) next.push(below)
    }
    level = next
  }
})

const isNew = (compared: Set<string>, { after, before, path }: Pair): boolean => {
  const key = `${before ?? "-"} ${after ?? "-"} ${path}`
  if (compared.has(key)) return false
  compared.add(key)
  return true
}

const compare = Effect.fnUntraced(function* <E>(diff: TreeDiff<E>, pair: Pair) {
  const before = yield* entriesOf(diff, pair, pair.before)
  const after = yield* entriesOf(diff, pair, pair.after)
  if (before === undefined || after === undefined) return []
  // An empty directory shows no change, but its name would be pushed.
  if (pair.after !== undefined && pair.path !== "" && after.length === 0)
    diff.onFault({ rule: "object", detail: "the directory is empty, which git does not write" }, pair.path)
  const next: Array<Pair> = []
  const had = new Map(before.map((entry) => [entry.name, entry]))
  const has = new Map(after.map((entry) => [entry.name, entry]))
  for (const name of new Set([...has.keys(), ...had.keys()])) {
    if (diff.ended()) return []
    const below = changed(diff, pathIn(pair, name), had.get(name), has.get(name))
    if (below !== undefined) next.push(below)
  }
  return next
})

const entriesOf = Effect.fnUntraced(function* <E>(diff: TreeDiff<E>, { path }: Pair, id: string | undefined) {
  if (id === undefined) return []
  const read = yield* diff.trees.read(id)
  if (Result.isSuccess(read)) return read.success
  diff.onFault(read.failure, path)
  return undefined
})

/**
 * Treats a directory that becomes a file, or the reverse, as both: its old entries are removed, and new ones are added.
 */
const changed = <E>(
  diff: TreeDiff<E>,
  path: string,
  before: GitObject.TreeEntry | undefined,
  after: GitObject.TreeEntry | undefined
): Pair | undefined => {
  if (before?.id === after?.id && before?.mode === after?.mode) return undefined
  if (path.length > pathBytesMax) {
    diff.onFault({ rule: "path-bytes", detail: `a path has more than ${pathBytesMax} bytes` }, path)
    return undefined
  }
  const [oldTree, newTree] = [treeId(before), treeId(after)]
  const [oldLeaf, newLeaf] = [
    oldTree === undefined ? before : undefined,
    newTree === undefined ? after : undefined
  ]
  if (oldLeaf !== undefined || newLeaf !== undefined) diff.onChange({ path, before: oldLeaf, after: newLeaf })
  return oldTree === newTree ? undefined : { path, before: oldTree, after: newTree }
}

const treeId = (entry: GitObject.TreeEntry | undefined): string | undefined =>
  entry !== undefined && GitObject.kindOf(entry.mode) === "tree" ? entry.id : undefined

const pathIn = ({ path }: Pair, name: string): string => (path === "" ? name : `${path}/${name}`)
