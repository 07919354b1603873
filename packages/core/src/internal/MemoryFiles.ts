/** Files of a workspace in memory: a map from paths to files and directories. There are no links. */
import { Effect } from "effect"
import { type Files } from "../Executor.ts"
import { type FileEntry } from "../ExecutorValues.ts"
import { fileEntry } from "../ExecutorCommand.ts"
import { entriesMax, fileBytesMax } from "../ExecutorLimits.ts"
import type { FileRefused } from "../SandboxReason.ts"
import * as FilePath from "../FilePath.ts"

interface Node {
  /** Absent for a directory. */
  readonly content?: Uint8Array | undefined
}

/** Nodes by path relative to the workspace, without a slash at either end. The workspace itself is not in it. */
export type Tree = Map<string, Node>

export const empty = (): Tree => new Map()

const contentOf = (tree: Tree, path: string) => tree.get(path)?.content

const isDirectory = (tree: Tree, path: string) =>
  path === "" || (tree.has(path) && contentOf(tree, path) === undefined)

/** The directories above a path, from the top. */
const above = (path: string): ReadonlyArray<string> => {
  const parts = path.split("/").slice(0, -1)
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"))
}

const isBelowFile = (tree: Tree, path: string) =>
  above(path).some((directory) => contentOf(tree, directory) !== undefined)

/** The error for a path that does not exist. */
const absent = (tree: Tree, inner: string, path: string) =>
  isBelowFile(tree, inner) ? FilePath.notADirectory(path) : FilePath.notFound(path)

const entryOf = (name: string, { content }: Node): FileEntry =>
  fileEntry({
    name,
    type: content === undefined ? "directory" : "file",
    bytes: content?.byteLength ?? 0,
    modifiedMillis: 0
  })

export const make = (tree: Tree): Files<FileRefused> => ({
  read: (path, options) =>
    Effect.gen(function* () {
      const bytesMax = yield* FilePath.readBytesMax(path, options?.bytesMax)
      const inner = yield* FilePath.relative(path)
      const content = contentOf(tree, inner)
      if (content === undefined) {
        return yield* isDirectory(tree, inner) ? FilePath.notAFile(path) : absent(tree, inner, path)
      }
      if (content.byteLength > bytesMax) return yield* FilePath.tooLarge(path, bytesMax)
      return content.slice()
    }),
  write: (path, content) =>
    Effect.gen(function* () {
      const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content.slice()
      if (bytes.byteLength > fileBytesMax) return yield* FilePath.tooLarge(path, fileBytesMax)
      const inner = yield* FilePath.relative(path)
      if (isDirectory(tree, inner)) return yield* FilePath.notAFile(path)
      if (isBelowFile(tree, inner)) return yield* FilePath.notADirectory(path)
      for (const directory of above(inner)) if (!tree.has(directory)) tree.set(directory, {})
      tree.set(inner, { content: bytes })
    }),
  list: (path) =>
    Effect.gen(function* () {
      const inner = yield* FilePath.relative(path)
      if (contentOf(tree, inner) !== undefined) return yield* FilePath.notADirectory(path)
      if (!isDirectory(tree, inner)) return yield* absent(tree, inner, path)
      const prefix = inner === "" ? "" : `${inner}/`
      const entries: Array<FileEntry> = []
      for (const [other, node] of tree) {
        const name = other.slice(prefix.length)
        if (other.startsWith(prefix) && !name.includes("/")) entries.push(entryOf(name, node))
      }
      if (entries.length > entriesMax) return yield* FilePath.tooManyEntries(path)
      return entries.toSorted((one, other) => (one.name < other.name ? -1 : 1))
    }),
  stat: (path) =>
    Effect.gen(function* () {
      const inner = yield* FilePath.relative(path)
      const node = inner === "" ? {} : tree.get(inner)
      return node === undefined ? yield* absent(tree, inner, path) : entryOf(FilePath.nameOf(inner), node)
    }),
  remove: (path, options) =>
    Effect.gen(function* () {
      const inner = yield* FilePath.relative(path)
      if (inner === "") return yield* FilePath.theWorkspace(path)
      if (!tree.has(inner)) return yield* absent(tree, inner, path)
      if (isDirectory(tree, inner) && options?.recursive !== true) return yield* FilePath.aDirectory(path)
      for (const other of tree.keys()) {
        if (other === inner || other.startsWith(`${inner}/`)) tree.delete(other)
      }
    })
})
