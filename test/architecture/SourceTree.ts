/**
 * The repository as files, text and syntax, for the tests of its shape.
 *
 * Reads what is on disk, tracked or not, so that a file is judged before it is committed. Nothing here runs the code it
 * looks at.
 */
import { globSync, readFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseSync } from "rolldown/utils"

/** The root of the repository. */
export const root = fileURLToPath(new URL("../..", import.meta.url))

/** Every package, in the order in which one may build on another. */
export const packages = [
  "core",
  "host-files",
  "loop",
  "connections",
  "docker",
  "proxy",
  "git-relay",
  "graph-provider",
  "ledger",
  "sql",
  "server",
  "sessions",
  "promise",
  "deepagents",
  "ai-sdk",
  "openai-agents",
  "mastra",
  "acp",
  "temporal",
  "react",
  "page",
  "cli"
] as const

export type Package = (typeof packages)[number]

/** The command is started and never imported, and the toolkit of the host is for our packages: neither has an index. */
export const hasIndex = (name: Package): boolean => name !== "cli" && name !== "host-files"

const skipped = new Set(["node_modules", "dist", ".git", ".cogni", "results", "api-reference"])

/** Remembers the result of each argument: no test changes a file that it looks at, and many rules look at each. */
const remembered = <A>(of: (given: string) => A): ((given: string) => A) => {
  const known = new Map<string, A>()
  return (given) => {
    if (!known.has(given)) known.set(given, of(given))
    return known.get(given)!
  }
}

const listed = remembered((patterns) =>
  globSync(patterns.split("\n"), { cwd: root, exclude: (path) => skipped.has(basename(path)) }).toSorted()
)

/** Paths relative to the root, sorted; never a built or an installed file. */
export const files = (...patterns: ReadonlyArray<string>): ReadonlyArray<string> =>
  listed(patterns.join("\n"))

export const read = remembered((path) => readFileSync(join(root, path), "utf8"))

export const readJson = (path: string): any => JSON.parse(read(path))

/** Modules of a package, `index.ts` included, as paths below its `src`. */
export const modules = (name: Package): ReadonlyArray<string> =>
  files(`packages/${name}/src/**/*.{ts,tsx}`).map((path) => path.slice(`packages/${name}/src/`.length))

/** Patterns of the pages that people read. Each matches something, but for changesets right after a release. */
export const pagePatterns: ReadonlyArray<string> = [
  "*.md",
  ".changeset/*.md",
  ".github/**/*.md",
  "docs/**/*.md",
  "docs/*.txt",
  "packages/*/README.md",
  "examples/**/*.md",
  "images/**/*.md",
  "test/**/*.md"
]

export const pages = (): ReadonlyArray<string> => files(...pagePatterns)

/** Every TypeScript file that people write. */
export const sources = (): ReadonlyArray<string> =>
  files("packages/*/{src,test}/**/*.{ts,tsx}", "test/**/*.ts", "examples/**/*.ts", "*.ts")

/** A node of the syntax tree, as loosely as a walk needs it. */
export interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as Node).type === "string"

/** A comment, without its marks. */
export interface Comment {
  readonly type: "Line" | "Block"
  readonly value: string
  readonly start: number
  readonly end: number
}

interface Parsed {
  readonly program: Node
  readonly comments: ReadonlyArray<Comment>
}

const parsed = remembered((path): Parsed => {
  const { comments, errors, program } = parseSync(path, read(path))
  if (errors.length > 0) throw new Error(`${path} cannot be parsed: ${errors[0]!.message}`)
  return { program: program as unknown as Node, comments }
})

/** The syntax tree of a file, parsed once. */
export const tree = (path: string): Node => parsed(path).program

/** The comments of a file, in order. */
export const comments = (path: string): ReadonlyArray<Comment> => parsed(path).comments

/** Every node of a tree, parents first. */
export const walk = (node: Node): ReadonlyArray<Node> => {
  const nodes: Array<Node> = []
  const visit = (one: Node): void => {
    nodes.push(one)
    for (const key in one) {
      const value = one[key]
      if (!Array.isArray(value)) {
        if (isNode(value)) visit(value)
      } else for (const child of value) if (isNode(child)) visit(child)
    }
  }
  visit(node)
  return nodes
}

/** Where the lines of a file end. */
const lineEnds = remembered((path) => [...read(path).matchAll(/\n/gu)].map(({ index }) => index))

/** The line, from 1, at which a character stands. */
export const lineOf = (path: string, offset: number): number => {
  const ends = lineEnds(path)
  let [from, to] = [0, ends.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (ends[middle]! < offset) from = middle + 1
    else to = middle
  }
  return from + 1
}

export interface Import {
  readonly specifier: string
  readonly typeOnly: boolean
}

const importKinds = new Set([
  "ImportDeclaration",
  "ExportNamedDeclaration",
  "ExportAllDeclaration",
  "ImportExpression"
])

/** Imports and re-exports of a file, including dynamic imports of a literal. */
export const imports = remembered((path): ReadonlyArray<Import> =>
  walk(tree(path)).flatMap((node) => {
    const source = node["source"]
    if (!importKinds.has(node.type) || !isNode(source) || typeof source["value"] !== "string") return []
    return [
      { specifier: source["value"], typeOnly: node["importKind"] === "type" || node["exportKind"] === "type" }
    ]
  })
)

const exportsOf = remembered((name) => readJson(`packages/${name}/package.json`).exports)

/** The file of this repository that a specifier leads to, if it leads to one. */
export const resolve = (from: string, specifier: string): string | undefined => {
  if (specifier.startsWith(".")) return join(dirname(from), specifier)
  const [, name, module] = /^@cogni\/sandbox-([a-z-]+)(?:\/(.+))?$/u.exec(specifier) ?? []
  if (name === undefined) return undefined
  const target = exportsOf(name)[module === undefined ? "." : `./${module}`]
  return join("packages", name, target ?? `src/${module}.ts`)
}

/** Groups of two or more files that import each other in a circle, type imports counted. */
export const circles = (paths: ReadonlyArray<string>): ReadonlyArray<ReadonlyArray<string>> => {
  const known = new Set(paths)
  const found: Array<ReadonlyArray<string>> = []
  const order = new Map<string, number>()
  const stack: Array<string> = []
  // Tarjan: a file's low mark is the earliest file on the stack that it leads back to.
  const visit = (path: string): number => {
    const mine = order.size
    order.set(path, mine)
    stack.push(path)
    let low = mine
    for (const { specifier } of imports(path)) {
      const target = resolve(path, specifier)
      if (target === undefined || !known.has(target)) continue
      if (!order.has(target)) low = Math.min(low, visit(target))
      else if (stack.includes(target)) low = Math.min(low, order.get(target)!)
    }
    if (low === mine) {
      const circle = stack.splice(stack.indexOf(path))
      if (circle.length > 1) found.push(circle.toSorted())
    }
    return low
  }
  for (const path of paths) if (!order.has(path)) visit(path)
  return found
}

/** Names that a file takes from a module. */
export const importedNames = (path: string, from: RegExp): ReadonlyArray<string> =>
  (tree(path)["body"] as ReadonlyArray<Node>).flatMap((node) =>
    node.type === "ImportDeclaration" && from.test(String((node["source"] as Node)["value"]))
      ? (node["specifiers"] as ReadonlyArray<Node>).map((one) =>
          String(((one["imported"] ?? one["local"]) as Node)["name"])
        )
      : []
  )

export interface Mention {
  readonly text: string
  /** For `lineOf`. */
  readonly offset: number
}

/** `a.b` and `a["b"]` wherever they stand, as `a.b`. */
export const members = remembered((path): ReadonlyArray<Mention> =>
  walk(tree(path)).flatMap((node) => {
    const { object, property } = node
    if (node.type !== "MemberExpression" || !isNode(object) || !isNode(property)) return []
    const owner = object.type === "Identifier" ? object["name"] : ""
    const name = property["name"] ?? property["value"]
    return [{ text: `${String(owner)}.${String(name)}`, offset: node.start }]
  })
)

/** String literals, and the fixed parts of templates. */
export const strings = remembered(
  (path): ReadonlySet<string> =>
    new Set(
      walk(tree(path)).flatMap((node) =>
        node.type === "Literal" && typeof node["value"] === "string"
          ? [node["value"]]
          : node.type === "TemplateElement"
            ? [(node["value"] as { readonly cooked: string }).cooked]
            : []
      )
    )
)

export interface FunctionSize {
  readonly line: number
  /** Without the lines of the functions defined inside it: those count for themselves. */
  readonly lines: number
}

const functionKinds = new Set(["FunctionDeclaration", "FunctionExpression", "ArrowFunctionExpression"])

/** Every function, and how long it is by itself. */
export const functions = (path: string): ReadonlyArray<FunctionSize> => {
  const found: Array<FunctionSize> = []
  const visit = (node: Node): number => {
    const inner = Object.values(node)
      .flatMap((value): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [value]))
      .filter(isNode)
      .reduce((sum, child) => sum + visit(child), 0)
    if (!functionKinds.has(node.type)) return inner
    const line = lineOf(path, node.start)
    const all = lineOf(path, node.end) - line + 1
    found.push({ line, lines: all - inner })
    // A function on one line of its owner is part of that line.
    return all === 1 ? 0 : all - 1
  }
  visit(tree(path))
  return found
}

/** Names that a module exports, types marked as such. */
export const exportedNames = (path: string): ReadonlyArray<string> => {
  const names = (tree(path)["body"] as ReadonlyArray<Node>).flatMap((node) => {
    if (node.type === "ExportAllDeclaration") return [`* from ${String((node["source"] as Node)["value"])}`]
    if (node.type !== "ExportNamedDeclaration") return []
    const mark = node["exportKind"] === "type" ? "type " : ""
    const specifiers = node["specifiers"] as ReadonlyArray<Node>
    const declaration = node["declaration"]
    const declared = isNode(declaration) ? declaredNames(declaration) : []
    return [...declared, ...specifiers.map((one) => (one["exported"] as Node)["name"])].map(
      (name) => `${mark}${name}`
    )
  })
  // A schema and its type share one name: said once.
  return [
    ...new Set(
      names.filter((name) => !(name.startsWith("type ") && names.includes(name.slice("type ".length))))
    )
  ].toSorted()
}

const declaredNames = (declaration: Node): ReadonlyArray<string> => {
  const names = (pattern: Node): ReadonlyArray<string> =>
    pattern.type === "ObjectPattern"
      ? (pattern["properties"] as ReadonlyArray<Node>).flatMap((property) => names(property["value"] as Node))
      : [String(pattern["name"])]
  return declaration.type === "VariableDeclaration"
    ? (declaration["declarations"] as ReadonlyArray<Node>).flatMap((one) => names(one["id"] as Node))
    : [String((declaration["id"] as Node)["name"])]
}

const testCalls = /^(?:it|test|describe|layer)$/u

const calleeRoot = (node: Node): string => {
  if (node.type === "Identifier") return String(node["name"])
  const inner = node["object"] ?? node["callee"] ?? node["tag"]
  return isNode(inner) ? calleeRoot(inner) : ""
}

/** A title as it stands in the source: what a template fills in is `undefined`. */
export type Title = ReadonlyArray<string | undefined>

/** The fixed parts of a template, and `undefined` for each substitution between them. */
export const templateText = (node: Node): Title =>
  (node["quasis"] as ReadonlyArray<Node>)
    .map((quasi) => (quasi["value"] as { readonly cooked: string }).cooked)
    .flatMap((text, index) => (index === 0 ? [text] : [undefined, text]))

/** Titles of the tests and groups of a file, with their places. */
export const placedTitles = remembered(
  (path): ReadonlyArray<{ readonly text: Title; readonly offset: number }> =>
    walk(tree(path)).flatMap((node) => {
      if (node.type !== "CallExpression" || !testCalls.test(calleeRoot(node["callee"] as Node))) return []
      const [first] = node["arguments"] as ReadonlyArray<Node>
      if (first?.type === "Literal" && typeof first["value"] === "string")
        return [{ text: [first["value"]], offset: first.start }]
      return first?.type === "TemplateLiteral" ? [{ text: templateText(first), offset: first.start }] : []
    })
)

export const titles = (path: string): ReadonlyArray<Title> => placedTitles(path).map(({ text }) => text)

const escape = (text: string) => text.replaceAll(/[$()*+.?[\\\]^{|}]/gu, "\\$&")

/** Whether a file has a test of that title. Each substitution of a template must be a string in the same file. */
export const hasTest = (path: string, title: string): boolean =>
  titles(path).some((parts) => {
    const pattern = parts.map((part) => (part === undefined ? "(.+)" : escape(part))).join("")
    const match = new RegExp(`^${pattern}$`, "u").exec(title)
    const known = strings(path)
    return match !== null && match.slice(1).every((filled) => known.has(filled))
  })
