/**
 * Parses YAML 1.2 into plain values, with the line and column of each key.
 *
 * Messages never repeat a value, because a misplaced value may be a secret. Pure.
 */
import { Result } from "effect"
import { isAlias, isMap, isNode, isScalar, isSeq, LineCounter, parseDocument, type YAMLError } from "yaml"
import type { Problem } from "../../config/ConfigurationError.ts"

/** Keys of mappings and indices of sequences, from the root. */
export type Path = ReadonlyArray<PropertyKey>

export interface YamlDocument {
  readonly value: unknown
  /** Creates a problem at the key of a value. A missing key is reported at its parent. */
  readonly problem: (path: Path, message: string) => Problem
}

/** Uses of anchors, counting nested uses. */
const aliasesMax = 100

/** Values that are checked against the schema, counting the expansion of each alias. */
const valuesMax = 100_000

/** Parses one document, or fails with everything that prevents it. */
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
      // The library compares each key with each, which takes a minute for a large file given by mistake.
      uniqueKeys: false,
      resolveKnownTags: false,
      // Pretty errors quote the invalid line, and with it a value.
      prettyErrors: false,
      // With `silent`, a second document would be ignored without an error.
      logLevel: "error",
      lineCounter
    })
    const broken = [...document.errors, ...document.warnings]
    if (broken.length > 0) return Result.fail(broken.map((error) => at(error.pos[0], "", sentenceOf(error))))
    const { offsets, refusals } = placesOf(document.contents)
    const problem = (path: Path, message: string) => at(offsets(path), describePath(path), message)
    return refusals.length > 0
      ? Result.fail(refusals.map(({ message, offset, path }) => at(offset, describePath(path), message)))
      : Result.succeed({ value: document.toJS({ maxAliasCount: aliasesMax }), problem })
  } catch (thrown) {
    return Result.fail([{ key: "", message: thrown instanceof ReferenceError ? tooManyAliases : tooDeep }])
  }
}

/** How a key is written in a message: `routing.senders."slack:U0*"`. */
const describePath = (path: Path): string =>
  path
    .map((step) => {
      const characters = [...String(step)]
      const name = characters.length > 40 ? `${characters.slice(0, 39).join("")}…` : characters.join("")
      return /^(?:\d+|[A-Za-z_][\w-]*…?)$/u.test(name) ? name : JSON.stringify(name)
    })
    .join(".")

/** Finds the position of each key, and rejects valid YAML that a configuration must not use. */
const placesOf = (root: unknown) => {
  const places = new Map<string, number>()
  /** Number of values that each anchor stands for. */
  const anchors = new Map<string, number>()
  const refusals: Array<{ readonly path: Path; readonly offset: number; readonly message: string }> = []
  let values = 0
  const walk = (node: unknown, path: Path): void => {
    values += 1
    if (!isNode(node)) return
    const refuse = (message: string) => refusals.push({ path, offset: offsetOf(node), message })
    if (isAlias(node)) {
      const standsFor = anchors.get(node.source)
      if (standsFor === undefined) refuse("Expected an alias (`*…`) of an anchor (`&…`) that precedes it")
      else values += standsFor
      return
    }
    const before = values
    if (isMap(node)) {
      for (const { key, value } of node.items) {
        const inner = [...path, isScalar(key) ? String(key.value) : ""]
        const id = JSON.stringify(inner)
        const offset = offsetOf(key)
        if (places.has(id))
          refusals.push({ path: inner, offset, message: "Expected each key once, got a duplicate" })
        places.set(id, offset)
        walk(value, inner)
      }
    } else if (isSeq(node)) {
      for (const [index, item] of node.items.entries()) {
        places.set(JSON.stringify([...path, index]), offsetOf(item))
        walk(item, [...path, index])
      }
    } else if (isScalar(node) && typeof node.value === "number" && !decimal.test(node.source ?? "")) {
      refuse("Expected a plain decimal number, such as 300 or 0.5 (quote a string)")
    }
    if (node.anchor !== undefined) anchors.set(node.anchor, values - before)
  }
  walk(root, [])
  if (values > valuesMax)
    refusals.push({
      path: [],
      offset: 0,
      message: `Expected at most ${valuesMax} values, counting the expansion of each alias`
    })
  const offsets = (path: Path): number =>
    path.length === 0 ? 0 : (places.get(JSON.stringify(path)) ?? offsets(path.slice(0, -1)))
  return { refusals, offsets }
}

const decimal = /^-?(?:0|[1-9]\d{0,20})(?:\.\d{1,20})?$/u

const offsetOf = (node: unknown): number => (isNode(node) ? (node.range?.[0] ?? 0) : 0)

const tooDeep = "Expected fewer nested levels"

const tooManyAliases = `Expected at most ${aliasesMax} uses of anchors, counting nested uses`

/** Replacements for messages of the library that repeat the input, or that give advice to a programmer. */
const sentences: Partial<Record<YAMLError["code"], string>> = {
  BAD_DIRECTIVE: "Expected no directive (`%…`): this file is read as YAML 1.2",
  MULTIPLE_DOCS: "Expected one document, got another (`---`)",
  NON_STRING_KEY: "Expected a string as key",
  RESOURCE_EXHAUSTION: tooDeep,
  TAG_RESOLVE_FAILED: "Expected no tag (`!…`): quote a string"
}

/** Removes everything after a colon, which may repeat the input. */
const sentenceOf = ({ code, message }: YAMLError): string =>
  sentences[code] ?? message.replace(/(?<=\S): .*/su, "")
