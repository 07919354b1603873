/**
 * A text of YAML 1.2 as plain values, and the line and column of each key.
 *
 * No message repeats what was written: by mistake it may be a secret. Pure.
 */
import { Result } from "effect"
import { isAlias, isMap, isNode, isScalar, isSeq, LineCounter, parseDocument, type YAMLError } from "yaml"
import type { Problem } from "../../config/ConfigurationError.ts"

/** Keys of mappings, indices of sequences, from the root. */
export type Path = ReadonlyArray<PropertyKey>

export interface YamlDocument {
  readonly value: unknown
  /** Something wrong with a value, at its key; a missing key is told at the key that should hold it. */
  readonly problem: (path: Path, message: string) => Problem
}

/** How often anchors may be used together, each use counted with those inside it. */
const aliasesMax = 100

/** Values in all, with those that an alias stands for each time: what is checked against the schema. */
const valuesMax = 100_000

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
      // The library compares each key with each: a minute for a large file that is named by mistake.
      uniqueKeys: false,
      resolveKnownTags: false,
      // Pretty ones show the line that is wrong, and with it what was written.
      prettyErrors: false,
      // Silent, a second document would be left out without a word.
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

/** Where each key begins, and what is not taken although it is YAML. */
const placesOf = (root: unknown) => {
  const places = new Map<string, number>()
  /** How many values each stands for. */
  const anchors = new Map<string, number>()
  const refusals: Array<{ readonly path: Path; readonly offset: number; readonly message: string }> = []
  let values = 0
  const walk = (node: unknown, path: Path): void => {
    values += 1
    if (!isNode(node)) return
    const refuse = (message: string) => refusals.push({ path, offset: offsetOf(node), message })
    if (isAlias(node)) {
      const standsFor = anchors.get(node.source)
      if (standsFor === undefined)
        refuse("Expected an alias (`*…`) of an anchor (`&…`) that stands before it")
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
          refusals.push({ path: inner, offset, message: "Expected a key to stand once, got it again" })
        places.set(id, offset)
        walk(value, inner)
      }
    } else if (isSeq(node)) {
      for (const [index, item] of node.items.entries()) {
        places.set(JSON.stringify([...path, index]), offsetOf(item))
        walk(item, [...path, index])
      }
    } else if (isScalar(node) && typeof node.value === "number" && !decimal.test(node.source ?? "")) {
      refuse("Expected a plain decimal number, such as 300 or 0.5 (quote what is to be a string)")
    }
    if (node.anchor !== undefined) anchors.set(node.anchor, values - before)
  }
  walk(root, [])
  if (values > valuesMax)
    refusals.push({
      path: [],
      offset: 0,
      message: `Expected at most ${valuesMax} values, counting what each alias stands for`
    })
  const offsets = (path: Path): number =>
    path.length === 0 ? 0 : (places.get(JSON.stringify(path)) ?? offsets(path.slice(0, -1)))
  return { refusals, offsets }
}

const decimal = /^-?(?:0|[1-9]\d{0,20})(?:\.\d{1,20})?$/u

const offsetOf = (node: unknown): number => (isNode(node) ? (node.range?.[0] ?? 0) : 0)

const tooDeep = "Expected fewer levels in each other"

const tooManyAliases = `Expected at most ${aliasesMax} uses of an anchor, with those inside it`

/** In place of sentences of the library that repeat what was written, or say what a programmer may do. */
const sentences: Partial<Record<YAMLError["code"], string>> = {
  BAD_DIRECTIVE: "Expected no directive (`%…`): this file is read as YAML 1.2",
  MULTIPLE_DOCS: "Expected one document, got another (`---`)",
  NON_STRING_KEY: "Expected a string as key",
  RESOURCE_EXHAUSTION: tooDeep,
  TAG_RESOLVE_FAILED: "Expected no tag (`!…`): quote what is to be a string"
}

/** What comes after a colon is what was written. */
const sentenceOf = ({ code, message }: YAMLError): string =>
  sentences[code] ?? message.replace(/(?<=\S): .*/su, "")
