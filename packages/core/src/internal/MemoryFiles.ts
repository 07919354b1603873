/** Files of a workspace in memory: a map from paths to bytes. A directory exists if a file is below it. */
import { Effect } from "effect"
import { entriesMax, fileBytesMax, type FileEntry, type Files } from "../Executor.ts"
import type { FileRefused } from "../SandboxError.ts"
import * as FilePath from "../FilePath.ts"

/** Files by path relative to the workspace, without a slash at either end. */
export type Tree = Map<string, { readonly content: Uint8Array; readonly modifiedAt: string }>

export const empty = (): Tree => new Map()

const isDirectory = (tree: Tree, path: string) =>
  path === "" || [...tree.keys()].some((other) => other.startsWith(`${path}/`))

const isBelowFile = (tree: Tree, path: string) => {
  const above = path.split("/").slice(0, -1)
  return above.some((_, index) => tree.has(above.slice(0, index + 1).join("/")))
}

/** The error for a path that does not exist. */
const absent = (tree: Tree, inner: string, path: string) =>
  isBelowFile(tree, inner) ? FilePath.notADirectory(path) : FilePath.notFound(path)

export const make = (tree: Tree): Files<FileRefused> => ({
  read: (path, options) =>
    Effect.gen(function* () {
      const bytesMax = Math.min(options?.bytesMax ?? fileBytesMax, fileBytesMax)
      const inner = yield* FilePath.relative(path)
      const found = tree.get(inner)
      if (found === undefined) {
        return yield* isDirectory(tree, inner) ? FilePath.notAFile(path) : absent(tree, inner, path)
      }
      if (found.content.byteLength > bytesMax) return yield* FilePath.tooLarge(path, bytesMax)
      return found.content.slice()
    }),
  write: (path, content) =>
    Effect.gen(function* () {
      const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content.slice()
      if (bytes.byteLength > fileBytesMax) return yield* FilePath.tooLarge(path, fileBytesMax)
      const inner = yield* FilePath.relative(path)
      if (isDirectory(tree, inner)) return yield* FilePath.notAFile(path)
      if (isBelowFile(tree, inner)) return yield* FilePath.notADirectory(path)
      tree.set(inner, { content: bytes, modifiedAt: new Date(0).toISOString() })
    }),
  list: (path) =>
    Effect.gen(function* () {
      const inner = yield* FilePath.relative(path)
      if (tree.has(inner)) return yield* FilePath.notADirectory(path)
      if (!isDirectory(tree, inner)) return yield* absent(tree, inner, path)
      const prefix = inner === "" ? "" : `${inner}/`
      const entries = new Map<string, FileEntry>()
      for (const [other, { content, modifiedAt }] of tree) {
        if (!other.startsWith(prefix)) continue
        const [name = "", ...below] = other.slice(prefix.length).split("/")
        entries.set(
          name,
          below.length === 0
            ? { name, type: "file", bytes: content.byteLength, modifiedAt }
            : { name, type: "directory", bytes: 0, modifiedAt }
        )
      }
      if (entries.size > entriesMax) return yield* FilePath.tooManyEntries(path)
      return [...entries.values()].toSorted((one, other) => (one.name < other.name ? -1 : 1))
    })
})
