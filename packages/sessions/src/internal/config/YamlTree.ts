/**
 * A text of YAML 1.2 as plain values, and the place of each of them.
 *
 * Stricter than YAML: keys are strings and stand once, numbers are decimal and finite, and nothing merges. What an
 * alias stands for is copied, up to a number of nodes, so that a few lines cannot become a great many. Objects have no
 * prototype, so that no key means anything but itself. Pure.
 */
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  Scalar,
  visit,
  type YAMLError,
  type YAMLMap,
  type YAMLSeq
} from "yaml"
import type { Problem } from "../../config/ConfigurationError.ts"
import { short } from "@cogni/sandbox-loop/ToolText"
import * as YamlText from "./YamlText.ts"

/** Values of a whole file, each alias counted as all that it stands for. */
export const nodesMax = 20_000

/** Keys of mappings, indices of sequences, from the root. */
export type Path = ReadonlyArray<string | number>

export interface Place {
  readonly line: number
  readonly column: number
}

/** Something wrong with a key or a value of a tree. */
export interface Finding {
  readonly path: Path
  readonly part: "key" | "value"
  /** Where it is not where the path leads: of a key that is none, or stands twice. */
  readonly place?: Place
  readonly message: string
}

export interface Tree {
  readonly value: unknown
  /** Where a value begins, or its key does; of what is not there, where what would hold it begins. */
  readonly placeOf: (path: Path, part: "key" | "value") => Place
}

export type Parsed =
  | { readonly _tag: "Tree"; readonly tree: Tree; readonly findings: ReadonlyArray<Finding> }
  | { readonly _tag: "Broken"; readonly problems: readonly [Problem, ...ReadonlyArray<Problem>] }

/** A tree with findings lacks what they are about. */
export const parse = (text: string): Parsed => {
  const lineCounter = new LineCounter()
  const raw = YamlText.problemsOf(text)
  if (isNonEmpty(raw)) {
    lineCounter.addNewLine(0)
    for (const { index } of text.matchAll(/\n/gu)) lineCounter.addNewLine(index + 1)
    return broken(raw, lineCounter)
  }
  const document = parseDocument(text, {
    version: "1.2",
    schema: "core",
    strict: true,
    merge: false,
    resolveKnownTags: false,
    // Ours: that of the library compares each key with each.
    uniqueKeys: false,
    prettyErrors: false,
    // Silent, a second document would be left out without a word.
    logLevel: "error",
    lineCounter
  })
  const problems = [...document.errors, ...document.warnings].map(({ code, pos }) => ({
    offset: pos[0],
    message: describe(code)
  }))
  if (isNonEmpty(problems)) return broken(problems, lineCounter)
  if (isNothing(document)) return broken([{ offset: 0, message: emptyFile }], lineCounter)
  return walk(document, lineCounter)
}

/** How a key is written in a message: `routing.senders."slack:U0*"`. */
export const describePath = (path: Path): string =>
  path
    .map((step) => {
      if (typeof step === "number") return String(step)
      const name = clip(step)
      return /^[A-Za-z_][\w-]*…?$/u.test(name) ? name : JSON.stringify(name)
    })
    .join(".")

/** What may be told of a text that came from a file: its beginning, on one line. */
export const clip = (text: string): string => short(text, shownCharactersMax)

const shownCharactersMax = 40

interface Entry {
  readonly key: number
  readonly value: number
  readonly children: Map<string | number, Entry>
}

interface Walk {
  readonly targets: ReadonlyMap<unknown, Node>
  readonly lineCounter: LineCounter
  readonly findings: Array<Finding>
  /** Aliases that are being followed: one inside itself would never end. */
  readonly following: Set<unknown>
  nodes: number
}

const walk = (document: Document, lineCounter: LineCounter): Parsed => {
  const state: Walk = {
    targets: targetsOf(document),
    lineCounter,
    findings: [],
    following: new Set(),
    nodes: 0
  }
  const root: Entry = { key: 0, value: offsetOf(document.contents), children: new Map() }
  const value = valueOf(state, document.contents, [], root)
  const placeOf: Tree["placeOf"] = (path, part) => {
    let entry = root
    for (const [at, step] of path.entries()) {
      const next = entry.children.get(step)
      if (next === undefined) return toPlace(at === 0 ? 0 : entry.key, lineCounter)
      entry = next
    }
    return toPlace(entry[part], lineCounter)
  }
  return { _tag: "Tree", tree: { value, placeOf }, findings: state.findings }
}

/** What each alias stands for: the last of that name before it. Once for all, as the library looks through all for each. */
const targetsOf = (document: Document): ReadonlyMap<unknown, Node> => {
  const anchors = new Map<string, Node>()
  const targets = new Map<unknown, Node>()
  visit(document, {
    Node: (_, node) => {
      if (!isAlias(node)) {
        if (node.anchor !== undefined) anchors.set(node.anchor, node)
        return
      }
      const target = anchors.get(node.source)
      if (target !== undefined) targets.set(node, target)
    }
  })
  return targets
}

const valueOf = (state: Walk, node: unknown, path: Path, entry: Entry): unknown => {
  const refuse = (message: string) => {
    state.findings.push({ path, part: "value", place: toPlace(entry.value, state.lineCounter), message })
    return undefined
  }
  state.nodes += 1
  if (state.nodes === nodesMax + 1) {
    refuse(`Expected at most ${nodesMax} values in all (aliases count as what they stand for)`)
  }
  if (state.nodes > nodesMax) return undefined
  if (path.length > YamlText.depthMax) return refuse(YamlText.tooDeep)
  if (isAlias(node)) {
    const target = state.targets.get(node)
    if (target === undefined)
      return refuse("Expected an alias (`*…`) of an anchor (`&…`) that stands before it")
    if (state.following.has(target)) return refuse("Expected no alias inside what it stands for")
    state.following.add(target)
    const value = valueOf(state, target, path, entry)
    state.following.delete(target)
    return value
  }
  if (isMap(node)) return objectOf(state, node, path, entry)
  if (isSeq(node)) return arrayOf(state, node, path, entry)
  return isScalar(node) ? scalarOf(node, refuse) : null
}

const objectOf = (state: Walk, node: YAMLMap, path: Path, entry: Entry): object => {
  const object: Record<string, unknown> = Object.create(null)
  for (const pair of node.items) {
    const offset = offsetOf(pair.key) || entry.value
    const place = toPlace(offset, state.lineCounter)
    const key = keyOf(pair)
    if (typeof key !== "string") {
      state.findings.push({ path, part: "key", place, message: key.problem })
    } else if (entry.children.has(key)) {
      const message = "Expected a key to stand once, got it again"
      state.findings.push({ path: [...path, key], part: "key", place, message })
    } else {
      const child: Entry = { key: offset, value: offsetOf(pair.value) || offset, children: new Map() }
      entry.children.set(key, child)
      object[key] = valueOf(state, pair.value, [...path, key], child)
    }
  }
  return object
}

const arrayOf = (state: Walk, node: YAMLSeq, path: Path, entry: Entry): ReadonlyArray<unknown> =>
  node.items.map((item, index) => {
    const offset = offsetOf(item) || entry.value
    const child: Entry = { key: offset, value: offset, children: new Map() }
    entry.children.set(index, child)
    return valueOf(state, item, [...path, index], child)
  })

const scalarOf = (node: Scalar, refuse: (message: string) => undefined): unknown => {
  const { source = "", value } = node
  if (typeof value === "number" && node.type === Scalar.PLAIN) {
    if (!/^-?(?:0|[1-9]\d{0,20})(?:\.\d{1,20})?$/u.test(source)) {
      return refuse(
        `Expected a plain decimal number, such as 300 or 0.5, got ${clip(source)} (quote what is to be a string)`
      )
    }
  }
  return typeof value === "string" && !isText(value)
    ? refuse("Expected text without NUL and without halves of a character")
    : value
}

/** Names that mean something else in JavaScript are nobody's. */
const reserved = new Set(["__proto__", "constructor", "prototype"])

const keyOf = ({ key }: Pair): string | { readonly problem: string } => {
  const value: unknown = isScalar(key) ? key.value : undefined
  if (typeof value !== "string") {
    const shown = isScalar(key) ? key.source : undefined
    return {
      problem: `Expected a string as key${shown === undefined || shown === "" ? "" : `, got ${clip(shown)} (quote it)`}`
    }
  }
  if (value === "<<") return { problem: "Expected no merge key (`<<`): write the keys out" }
  if (!isText(value)) return { problem: "Expected a key without NUL and without halves of a character" }
  return reserved.has(value) ? { problem: `Expected another key than ${value}, which is reserved` } : value
}

const isText = (text: string) => text.isWellFormed() && !text.includes("\0")

const offsetOf = (node: unknown): number =>
  isAlias(node) || isMap(node) || isSeq(node) || isScalar(node) ? (node.range?.[0] ?? 0) : 0

const toPlace = (offset: number, lineCounter: LineCounter): Place => {
  const { col, line } = lineCounter.linePos(offset)
  return { line: Math.max(1, line), column: Math.max(1, col) }
}

const toProblem = ({ message, offset }: YamlText.TextProblem, lineCounter: LineCounter): Problem => ({
  ...toPlace(offset, lineCounter),
  key: "",
  message
})

type NonEmpty<A> = readonly [A, ...ReadonlyArray<A>]

const isNonEmpty = <A>(all: ReadonlyArray<A>): all is NonEmpty<A> => all.length > 0

const broken = ([first, ...rest]: NonEmpty<YamlText.TextProblem>, lineCounter: LineCounter): Parsed => ({
  _tag: "Broken",
  problems: [toProblem(first, lineCounter), ...rest.map((problem) => toProblem(problem, lineCounter))]
})

const emptyFile = "Expected a configuration, got an empty file (it needs agent_configs and routing)"

const isNothing = ({ contents }: Document) =>
  contents === null || (isScalar(contents) && contents.value === null && (contents.source ?? "") === "")

/** The library's own words repeat what was written. */
const describe = (code: YAMLError["code"]): string => sentences[code] ?? "Expected YAML"

const sentences: Partial<Record<YAMLError["code"], string>> = {
  ALIAS_PROPS: "Expected an alias (`*…`) alone, without tag or anchor",
  BAD_ALIAS: "Expected an alias (`*…`) of an anchor (`&…`) that stands before it",
  BAD_DIRECTIVE: "Expected no directive (`%…`)",
  BAD_DQ_ESCAPE: "Expected an escape that YAML knows (in single quotes a backslash is itself)",
  BAD_INDENT: "Expected the same indentation as what stands beside it",
  BAD_SCALAR_START: "Expected a value that does not begin with a reserved character (quote it)",
  BLOCK_AS_IMPLICIT_KEY: "Expected a key on one line, with one `:` (quote a value that holds `: `)",
  BLOCK_IN_FLOW: "Expected no block inside brackets",
  KEY_OVER_1024_CHARS: "Expected a key of at most 1024 characters",
  MISSING_CHAR:
    "Expected something that is missing: a closing bracket or quote, a comma, a colon, or a blank",
  MULTILINE_IMPLICIT_KEY: "Expected a key on one line",
  MULTIPLE_ANCHORS: "Expected at most one anchor for a value",
  MULTIPLE_DOCS: "Expected one document, got another (`---`)",
  RESOURCE_EXHAUSTION: YamlText.tooDeep,
  TAB_AS_INDENT: "Expected blanks as indentation, got a tab",
  UNEXPECTED_TOKEN: "Expected something else here: look at indentation, brackets, quotes and colons"
}
