/**
 * Checks that only modules of host-files open paths of the host for writing.
 *
 * It checks the imports of a module from `node:fs`, calls on such a module as a whole, and calls on Effect's
 * `FileSystem`. Opening for reading is recognized by its flags.
 */
import { assert, describe, it } from "@effect/vitest"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

/** Functions of `node:fs` and `node:fs/promises` that write, with and without `Sync`. */
const writers = new Set(
  [
    "appendFile",
    "copyFile",
    "cp",
    "createWriteStream",
    "WriteStream",
    "link",
    "mkdtemp",
    "mkdtempDisposable",
    "rename",
    "symlink",
    "truncate",
    "writeFile"
  ].flatMap((name) => [name, `${name}Sync`])
)

const openers = new Set(["open", "openSync", "openAsBlob"])

/** Functions of Effect's `FileSystem` that write. */
const effectWriters = new Set([
  "copy",
  "copyFile",
  "link",
  "makeDirectory",
  "makeTempDirectory",
  "makeTempDirectoryScoped",
  "makeTempFile",
  "makeTempFileScoped",
  "open",
  "rename",
  "sink",
  "symlink",
  "truncate",
  "writeFile",
  "writeFileString"
])

/** Modules that may open a path for writing, each with its reason. This list must only get shorter. */
const allowed: Readonly<Record<string, string>> = {
  "packages/git-relay/src/internal/origin/RootDelivery.ts":
    "writes objects and one ref to the user's repository, through directories that it holds by descriptor"
}

const isFiles = (specifier: string) => /^(?:node:)?fs(?:\/promises)?$/u.test(specifier)

const named = (node: unknown): string | undefined => (node as SourceTree.Node | undefined)?.["name"] as string

/** Whether flags only read: `"r"`, or only the kernel's constants for reading. */
const readsOnly = (text: string | undefined) =>
  text === undefined ||
  text === '"r"' ||
  (/\bO_(?:RDONLY|PATH)\b/u.test(text) && !/O_(?:WRONLY|RDWR|CREAT|APPEND|TRUNC|TMPFILE)/u.test(text))

/** Lists every expression of a module that opens a path for writing. */
const writes = (path: string): ReadonlyArray<string> => {
  const nodes = [...SourceTree.walk(SourceTree.tree(path))]
  const source = SourceTree.read(path)
  const whole = new Set<string>()
  const own = new Map<string, string>()
  const found: Array<string> = []
  const say = (node: SourceTree.Node, what: string) =>
    found.push(`${path}:${SourceTree.lineOf(path, node.start)} ${what}`)
  const doors = new Set<string>()
  let hasFileSystem = false

  for (const node of nodes) {
    const from = (node["source"] as SourceTree.Node | undefined)?.["value"]
    if (node.type === "ImportExpression" && isFiles(String(from))) say(node, `import(${String(from)})`)
    if (node.type === "ExportNamedDeclaration" || node.type === "ExportAllDeclaration") {
      if (typeof from === "string" && isFiles(from)) say(node, `export … from ${from}`)
    }
    if (node.type !== "ImportDeclaration" || typeof from !== "string" || node["importKind"] === "type")
      continue
    for (const specifier of node["specifiers"] as ReadonlyArray<SourceTree.Node>) {
      const local = named(specifier["local"])!
      const imported = named(specifier["imported"])
      if (from.startsWith("@cogni/sandbox-host-files/")) doors.add(local)
      if (/^effect(?:\/|$)/u.test(from) && imported === "FileSystem") hasFileSystem = true
      if (!isFiles(from) || specifier["importKind"] === "type") continue
      if (imported === undefined || imported === "promises" || imported === "default") whole.add(local)
      else if (writers.has(imported)) say(specifier, imported)
      else if (openers.has(imported)) own.set(local, imported)
    }
  }

  const opened = new Set<unknown>()
  for (const node of nodes) {
    if (node.type !== "CallExpression") continue
    const callee = node["callee"] as SourceTree.Node
    const [, flags] = node["arguments"] as ReadonlyArray<SourceTree.Node>
    const text = flags && source.slice(flags.start, flags.end)
    const isOpen =
      callee.type === "MemberExpression"
        ? whole.has(named(callee["object"]) ?? "") && openers.has(named(callee["property"]) ?? "")
        : own.has(named(callee) ?? "")
    if (!isOpen) continue
    opened.add(callee)
    if (!readsOnly(text)) say(node, `open(…, ${text})`)
  }
  const names = new Set<unknown>(
    nodes.flatMap((node) => [
      node["imported"],
      node["local"],
      node["computed"] === true ? 0 : node["property"]
    ])
  )
  for (const node of nodes) {
    if (node.type === "Property") names.add(node["key"])
    if (node.type !== "Identifier" || names.has(node) || opened.has(node)) continue
    if (own.has(named(node)!)) say(node, `${own.get(named(node)!)!} without its flags`)
  }
  for (const node of nodes) {
    // A function that is not called directly, or has a computed name, counts as writing, because it cannot be checked.
    if (node.type === "MemberExpression" && whole.has(named(node["object"]) ?? "")) {
      const property = node["computed"] === true ? "[…]" : named(node["property"])!
      if (property === "[…]" || property === "promises" || writers.has(property)) say(node, property)
      if (openers.has(property) && !opened.has(node)) say(node, `${property} without its flags`)
    } else if (
      hasFileSystem &&
      node.type === "MemberExpression" &&
      !doors.has(named(node["object"]) ?? "") &&
      effectWriters.has(named(node["property"]) ?? "")
    ) {
      say(node, `FileSystem.${named(node["property"])}`)
    } else if (node.type === "ObjectPattern" && hasFileSystem) {
      for (const property of node["properties"] as ReadonlyArray<SourceTree.Node>) {
        const key = named(property["key"])
        if (key !== undefined && effectWriters.has(key)) say(property, `FileSystem.${key}`)
      }
    }
  }
  return found
}

/** Lists every call of a module that makes a directory together with those above it. */
const recursiveMakers = (path: string): ReadonlyArray<string> =>
  [...SourceTree.walk(SourceTree.tree(path))].flatMap((node) => {
    if (node.type !== "CallExpression") return []
    const callee = node["callee"] as SourceTree.Node
    const name = named(callee.type === "MemberExpression" ? callee["property"] : callee)
    const [, options] = node["arguments"] as ReadonlyArray<SourceTree.Node>
    const text = options === undefined ? "" : SourceTree.read(path).slice(options.start, options.end)
    return /^mkdir(?:Sync)?$/u.test(name ?? "") && text.includes("recursive")
      ? [`${path}:${SourceTree.lineOf(path, node.start)} ${name}`]
      : []
  })

const isDoor = (path: string) => path.startsWith("packages/host-files/src/")

describe("files", () => {
  it("no module outside host-files opens a path for writing", () => {
    const offenders = SourceTree.files("packages/*/src/**/*.{ts,tsx}")
      .filter((path) => !isDoor(path) && !path.includes("/src/testing/") && allowed[path] === undefined)
      .flatMap(writes)
    none(
      offenders,
      "use HostFile for files that a user names, OwnFiles for our own files, WorkspaceFiles for a workspace"
    )
  })

  it("no module makes a directory recursively with Node, which never returns below /proc", () => {
    none(
      SourceTree.files("packages/*/src/**/*.{ts,tsx}").flatMap(recursiveMakers),
      "use OwnFiles.makeDirectory"
    )
  })

  it("the list of exceptions contains only modules that write", () => {
    none(
      Object.keys(allowed).filter((path) => writes(path).length === 0),
      "remove these from the list"
    )
  })

  it("the check detects open, create, rename, link and copy in host-files itself", () => {
    const seen = SourceTree.files("packages/host-files/src/*.ts").flatMap(writes).join("\n")
    for (const way of ["copyFile", "mkdtemp", "rename", "link", "O_CREAT"]) assert.include(seen, way)
  })
})
