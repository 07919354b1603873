/**
 * A text of YAML 1.2 as plain values, and the line and column of each key.
 *
 * No message repeats what was written: by mistake it may be a secret. Pure.
 */
import { Result } from "effect"
import {
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  visit,
  type YAMLError
} from "yaml"
import type { Problem } from "../../config/ConfigurationError.ts"

/** Keys of mappings, indices of sequences, from the root. */
export type Path = ReadonlyArray<PropertyKey>

export interface YamlDocument {
  readonly value: unknown
  /** Something wrong with a value, at its key; where there is none, at the key of the value that lacks it. */
  readonly problem: (path: Path, message: string) => Problem
}

/** How often anchors may be used together, each use counted with those inside it. */
const aliasesMax = 100

/** Reads one document, or tells all that keeps it from being read. */
export const parse = (text: string): Result.Result<YamlDocument, ReadonlyArray<Problem>> => {
  const lineCounter = new LineCounter()
  const at = (offset: number, key: string, message: string): Problem => {
    const { col, line } = lineCounter.linePos(offset)
    return { line: Math.max(1, line), column: Math.max(1, col), key, message }
  }
  try {
    const document = parseDocument(text, {
      version: "1.2",
      schema: "core",
      merge: false,
      stringKeys: true,
      resolveKnownTags: false,
      // Pretty ones show the line that is wrong, and with it what was written.
      prettyErrors: false,
      // Silent, a second document would be left out without a word.
      logLevel: "error",
      lineCounter
    })
    const problems: Array<Problem> = []
    const anchors = new Set<string>()
    const keys = new Map<number, string>()
    visit(document, {
      Node: (_, node, ancestors) => {
        const offset = node.range?.[0] ?? 0
        const key = describePath(
          ancestors.flatMap((one) => (isPair(one) && isScalar(one.key) ? [String(one.key.value)] : []))
        )
        keys.set(offset, key)
        const message = refusalOf(node, anchors)
        if (message !== undefined) problems.push(at(offset, key, message))
        if (!isAlias(node) && node.anchor !== undefined) anchors.add(node.anchor)
      }
    })
    for (const error of [...document.errors, ...document.warnings])
      problems.push(at(error.pos[0], keys.get(error.pos[0]) ?? "", sentenceOf(error)))
    if (problems.length > 0) return Result.fail(problems)
    return Result.succeed({
      value: document.toJS({ maxAliasCount: aliasesMax }),
      problem: (path, message) => at(offsetOf(document.contents, path), describePath(path), message)
    })
  } catch (thrown) {
    return Result.fail([{ key: "", message: thrown instanceof ReferenceError ? tooManyAliases : tooDeep }])
  }
}

/** What is not taken although it is YAML. */
const refusalOf = (node: Node, anchors: ReadonlySet<string>): string | undefined => {
  if (isAlias(node)) {
    return anchors.has(node.source)
      ? undefined
      : "Expected an alias (`*…`) of an anchor (`&…`) that stands before it"
  }
  return isScalar(node) &&
    typeof node.value === "number" &&
    !/^-?(?:0|[1-9]\d{0,20})(?:\.\d{1,20})?$/u.test(node.source ?? "")
    ? "Expected a plain decimal number, such as 300 or 0.5 (quote what is to be a string)"
    : undefined
}

const tooDeep = "Expected fewer levels in each other"

const tooManyAliases = `Expected at most ${aliasesMax} uses of an anchor, with those inside it`

/** In place of sentences of the library that repeat what was written, or say what a programmer may do. */
const sentences: Partial<Record<YAMLError["code"], string>> = {
  BAD_DIRECTIVE: "Expected no directive (`%…`): this file is read as YAML 1.2",
  DUPLICATE_KEY: "Expected a key to stand once, got it again",
  MULTIPLE_DOCS: "Expected one document, got another (`---`)",
  NON_STRING_KEY: "Expected a string as key",
  RESOURCE_EXHAUSTION: tooDeep,
  TAG_RESOLVE_FAILED: "Expected no tag (`!…`): quote what is to be a string"
}

/** What comes after a colon is what was written. */
const sentenceOf = ({ code, message }: YAMLError): string =>
  sentences[code] ?? message.replace(/(?<=\S): .*/su, "")

const offsetOf = (root: unknown, path: Path): number => {
  let node = root
  let offset = 0
  for (const step of path) {
    const pair = isMap(node) ? node.items.find(({ key }) => isScalar(key) && key.value === step) : undefined
    const next: unknown = isSeq(node) ? node.items[Number(step)] : pair?.value
    const start = pair?.key ?? next
    if (!isNode(start)) break
    offset = start.range?.[0] ?? offset
    node = next
  }
  return offset
}

/** How a key is written in a message: `routing.senders."slack:U0*"`. */
export const describePath = (path: Path): string =>
  path
    .map((step) => {
      const characters = [...String(step)]
      const name = characters.length > 40 ? `${characters.slice(0, 39).join("")}…` : characters.join("")
      return /^(?:\d+|[A-Za-z_][\w-]*…?)$/u.test(name) ? name : JSON.stringify(name)
    })
    .join(".")
