/** Objects of a repository in memory, encoded and named as git does. For tests, and for the in-memory relay. */
import { createHash } from "node:crypto"
import { Effect } from "effect"
import * as GitObject from "./GitObject.ts"
import type { ObjectInfo, ObjectReader, ObjectType } from "./ObjectReader.ts"
import { CommitId, type ObjectFormat } from "../../Refs.ts"

/** A stored object: its type, and its content without git's header. */
interface StoredObject {
  readonly type: ObjectType
  readonly content: Uint8Array
}

/** A file of a tree: its content, or its mode and content. */
export type File = string | Uint8Array | { readonly mode: string; readonly content: string | Uint8Array }

/** An entry that refers to an object by its ID. */
interface Pointer {
  readonly mode: string
  readonly id: string
}

export interface CommitOptions {
  readonly tree: string
  readonly parents?: ReadonlyArray<string> | undefined
  readonly message?: string | undefined
  /** `Name <email>`. */
  readonly author?: string | undefined
  readonly committer?: string | undefined
  /** Seconds since the epoch. */
  readonly time?: number | undefined
  /** Additional header lines, such as a signature. */
  readonly header?: string | undefined
}

export type MemoryObjects = ReturnType<typeof make>

const bot = "Agent <agent@sandbox.invalid>"

export const make = (format: ObjectFormat = "sha1") => {
  const objects = new Map<string, StoredObject>()
  let [infos, contents] = [0, 0]

  const put = (type: ObjectType, content: Uint8Array): string => {
    const hash = createHash(format).update(`${type} ${content.byteLength}\0`).update(content)
    const id = hash.digest("hex")
    objects.set(id, { type, content })
    return id
  }
  const putBlob = (content: string | Uint8Array) => put("blob", bytesOf(content))
  /** Sorts the entries into git's order. */
  const putTree = (entries: ReadonlyArray<GitObject.TreeEntry>) =>
    put("tree", GitObject.encodeTree(entries.toSorted(GitObject.compareEntries)))
  const pointerOf = (file: File | Pointer): Pointer => {
    if (typeof file === "string" || file instanceof Uint8Array) return { mode: "100644", id: putBlob(file) }
    return "id" in file ? file : { mode: file.mode, id: putBlob(file.content) }
  }
  const parentsOf = (id: string): ReadonlyArray<CommitId> => {
    const object = objects.get(id)
    const commit = object?.type === "commit" ? GitObject.parseCommit(object.content, format) : undefined
    return (commit?.parents ?? []).map((parent) => CommitId.make(parent))
  }

  return {
    format,
    put,
    putBlob,
    putTree,
    /** Stores a whole tree by paths; names are UTF-8. */
    putFiles: (files: Readonly<Record<string, File | Pointer>>) => {
      const named = Object.entries(files).map(([path, file]): Named => ({
        ...pointerOf(file),
        parts: Buffer.from(path, "utf8").toString("latin1").split("/")
      }))
      return putDirectory(putTree, named)
    },
    putCommit: (options: CommitOptions) => CommitId.make(put("commit", bytesOf(encodeCommit(options)))),
    get: (id: string) => objects.get(id),
    remove: (id: string) => void objects.delete(id),
    reader: {
      info: (ids) =>
        Effect.sync(() => {
          infos += ids.length
          return ids.map((id): ObjectInfo | undefined => {
            const object = objects.get(id)
            return object && { type: object.type, bytes: object.content.byteLength }
          })
        }),
      content: (id) =>
        Effect.sync(() => {
          contents += 1
          return objects.get(id)?.content
        }),
      commits: (tip, base, max) =>
        Effect.sync(() => {
          const old = ancestorsOf(parentsOf, base)
          return childrenFirst(parentsOf, tip, old)
            .slice(0, max)
            .map((id) => ({ id, parents: parentsOf(id) }))
        }),
      isAncestor: (ancestor, descendant) =>
        Effect.sync(() => ancestorsOf(parentsOf, descendant).has(ancestor))
    } satisfies ObjectReader,
    /** Number of objects that were requested so far. */
    reads: () => ({ infos, contents })
  }
}

type ParentsOf = (id: string) => ReadonlyArray<CommitId>

interface Named extends Pointer {
  readonly parts: ReadonlyArray<string>
}

const bytesOf = (content: string | Uint8Array): Uint8Array =>
  typeof content === "string" ? Buffer.from(content, "utf8") : content

type PutTree = (entries: ReadonlyArray<GitObject.TreeEntry>) => string

const putDirectory = (putTree: PutTree, files: ReadonlyArray<Named>): string => {
  const below = Map.groupBy(files, ({ parts }) => parts[0] ?? "")
  return putTree(
    [...below].map(([name, inside]) => {
      const [first] = inside
      return first !== undefined && first.parts.length === 1
        ? { mode: first.mode, name, id: first.id }
        : {
            mode: "40000",
            name,
            id: putDirectory(
              putTree,
              inside.map((file) => ({ ...file, parts: file.parts.slice(1) }))
            )
          }
    })
  )
}

const encodeCommit = ({ author = bot, header, message = "work\n", parents = [], ...rest }: CommitOptions) => {
  const { committer = author, time = 1_700_000_000, tree } = rest
  const lines = [
    `tree ${tree}`,
    ...parents.map((parent) => `parent ${parent}`),
    `author ${author} ${time} +0000`,
    `committer ${committer} ${time} +0000`,
    ...(header === undefined ? [] : [header])
  ]
  return `${lines.join("\n")}\n\n${message}`
}

const ancestorsOf = (parentsOf: ParentsOf, id: CommitId): ReadonlySet<string> => {
  const seen = new Set<string>([id])
  for (const next of seen) for (const parent of parentsOf(next)) seen.add(parent)
  return seen
}

const childrenFirst = (
  parentsOf: ParentsOf,
  tip: CommitId,
  old: ReadonlySet<string>
): ReadonlyArray<CommitId> => {
  const oldestFirst: Array<CommitId> = []
  const seen = new Set<string>(old)
  // A commit comes after its parents. Not recursive, because histories are long.
  const stack: Array<{ readonly id: CommitId; readonly done: boolean }> = [{ id: tip, done: false }]
  for (let top = stack.pop(); top !== undefined; top = stack.pop()) {
    if (top.done) oldestFirst.push(top.id)
    if (top.done || seen.has(top.id)) continue
    seen.add(top.id)
    stack.push({ id: top.id, done: true }, ...parentsOf(top.id).map((id) => ({ id, done: false })))
  }
  return oldestFirst.toReversed()
}
