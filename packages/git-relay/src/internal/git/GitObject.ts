/**
 * Parses and encodes commits and trees as git writes them, on bytes.
 *
 * Names and texts are latin1 strings: one character is one byte, whatever their encoding. Anything that git would not
 * have written gives `undefined`; nothing here throws.
 */
import type { ObjectFormat } from "../../Refs.ts"

export interface TreeEntry {
  /** Octal digits as they are written, such as `40000` for a tree. */
  readonly mode: string
  readonly name: string
  readonly id: string
}

export interface Commit {
  readonly tree: string
  readonly parents: ReadonlyArray<string>
  /** `Name <email>`, without the time. */
  readonly author: string
  readonly committer: string
  /** All lines before the message. */
  readonly header: string
  readonly message: string
}

/** Kind of an entry, determined by its mode. */
type EntryKind = "tree" | "file" | "symlink" | "submodule" | "odd"

const idBytes: Readonly<Record<ObjectFormat, number>> = { sha1: 20, sha256: 32 }

const space = 0x20

/** Maximum digits of a mode. git's modes have six; an old one may have a leading zero. */
const modeDigitsMax = 7

const kinds: ReadonlyMap<number, EntryKind> = new Map([
  [0o040000, "tree"],
  [0o100644, "file"],
  [0o100664, "file"],
  [0o100755, "file"],
  [0o120000, "symlink"],
  [0o160000, "submodule"]
])

/** Parses a tree. Refuses a tree that contains a name twice, because its meaning is ambiguous. */
export const parseTree = (bytes: Uint8Array, format: ObjectFormat): ReadonlyArray<TreeEntry> | undefined => {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const entries: Array<TreeEntry> = []
  const names = new Set<string>()
  for (let at = 0; at < buffer.length;) {
    const nameAt = buffer.indexOf(space, at) + 1
    if (nameAt === 0 || nameAt - 1 - at > modeDigitsMax) return undefined
    const mode = buffer.toString("latin1", at, nameAt - 1)
    const nameEnd = buffer.indexOf(0, nameAt)
    if (!/^[0-7]+$/u.test(mode) || nameEnd <= nameAt) return undefined
    const end = nameEnd + 1 + idBytes[format]
    const name = buffer.toString("latin1", nameAt, nameEnd)
    if (end > buffer.length || name.includes("/") || names.has(name)) return undefined
    names.add(name)
    entries.push({ mode, name, id: buffer.toString("hex", nameEnd + 1, end) })
    at = end
  }
  return entries
}

/** Encodes the entries in the given order. */
export const encodeTree = (entries: ReadonlyArray<TreeEntry>): Uint8Array =>
  Buffer.concat(
    entries.flatMap(({ id, mode, name }) => [
      Buffer.from(`${mode} ${name}\0`, "latin1"),
      Buffer.from(id, "hex")
    ])
  )

/** Compares entries in git's order, in which the name of a tree ends with a slash. */
export const compareEntries = (a: TreeEntry, b: TreeEntry): number => {
  const [left, right] = [sortKey(a), sortKey(b)]
  return left < right ? -1 : left > right ? 1 : 0
}

const sortKey = ({ mode, name }: TreeEntry) => (kindOf(mode) === "tree" ? `${name}/` : name)

export const kindOf = (mode: string): EntryKind => kinds.get(Number.parseInt(mode, 8)) ?? "odd"

/**
 * Parses a commit: tree, parents, author and committer in this order, any other lines, an empty line and the message.
 */
export const parseCommit = (bytes: Uint8Array, format: ObjectFormat): Commit | undefined => {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1")
  const headerEnd = text.indexOf("\n\n")
  const header = headerEnd === -1 ? text.replace(/\n$/u, "") : text.slice(0, headerEnd)
  const lines = header.split("\n")
  const tree = idOf(lines[0], "tree", format)
  let next = 1
  const parents: Array<string> = []
  for (; lines[next]?.startsWith("parent ") === true; next++) {
    const parent = idOf(lines[next], "parent", format)
    if (parent === undefined) return undefined
    parents.push(parent)
  }
  const author = identityOf(lines[next], "author")
  const committer = identityOf(lines[next + 1], "committer")
  // Programs disagree about which of two such lines counts.
  const again = lines.slice(next + 2).some((line) => /^(?:tree|parent|author|committer) /u.test(line))
  if (tree === undefined || author === undefined || committer === undefined || again) return undefined
  const message = headerEnd === -1 ? "" : text.slice(headerEnd + 2)
  return { tree, parents, author, committer, header, message }
}

/**
 * Returns the tree of a commit that existed before the run. The rest is not checked, because old commits can be
 * irregular.
 */
export const treeOfCommit = (bytes: Uint8Array, format: ObjectFormat): string | undefined => {
  const start = Buffer.from(bytes.subarray(0, "tree \n".length + idBytes[format] * 2)).toString("latin1")
  return start.endsWith("\n") ? idOf(start.slice(0, -1), "tree", format) : undefined
}

const idOf = (line: string | undefined, name: string, format: ObjectFormat): string | undefined => {
  if (line?.startsWith(`${name} `) !== true) return undefined
  const id = line.slice(name.length + 1)
  return id.length === idBytes[format] * 2 && /^[0-9a-f]+$/u.test(id) ? id : undefined
}

const identityOf = (line: string | undefined, name: string): string | undefined => {
  if (line?.startsWith(`${name} `) !== true) return undefined
  const end = line.lastIndexOf(">") + 1
  return end > name.length ? line.slice(name.length + 1, end) : undefined
}
