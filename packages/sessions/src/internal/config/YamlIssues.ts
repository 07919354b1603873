/**
 * What a schema has against a tree of YAML, at the lines and columns of the text.
 *
 * A message says what is expected and, of short plain values, what was found; of a key that is not known only its name
 * is told, for what stands there by mistake may be a secret. Pure.
 */
import { Result, Schema, SchemaIssue } from "effect"
import type { Problem } from "../../config/ConfigurationError.ts"
import * as YamlTree from "./YamlTree.ts"

export const toProblem = (
  tree: YamlTree.Tree,
  { message, part, path, place }: YamlTree.Finding
): Problem => ({
  ...(place ?? tree.placeOf(path, part)),
  key: YamlTree.describePath(path),
  message
})

/** A tree as what the schema makes of it, or everything that is wrong with it. */
export const decode = <A, E>(
  schema: Schema.Codec<A, E>,
  value: unknown
): Result.Result<A, ReadonlyArray<YamlTree.Finding>> =>
  Result.mapError(
    Schema.decodeUnknownResult(schema, { errors: "all", onExcessProperty: "error" })(value),
    ({ issue }) =>
      format(issue).issues.map(({ message, path = [] }) =>
        toFinding(
          value,
          path.map((step) => {
            const key = typeof step === "object" ? step.key : step
            return typeof key === "number" ? key : String(key)
          }),
          message
        )
      )
  )

/** Before these words a message is about a key, and after the first of them come the keys that are known. */
const unknownKey = "\0unknown key\0"
const missingKey = "\0missing key\0"
const namedKey = "\0named key\0"

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "MissingKey") return `${missingKey}${SchemaIssue.defaultLeafHook(issue)}`
    if (issue._tag !== "UnexpectedKey") return SchemaIssue.defaultLeafHook(issue)
    const message = issue.ast.annotations?.["messageUnexpectedKey"]
    return typeof message === "string"
      ? `${namedKey}${message}`
      : `${unknownKey}${issue.ast._tag === "Objects" ? issue.ast.propertySignatures.map(({ name }) => String(name)).join("\0") : ""}`
  }
})

const toFinding = (value: unknown, path: YamlTree.Path, message: string): YamlTree.Finding => {
  if (message.startsWith(namedKey)) return { path, part: "key", message: message.slice(namedKey.length) }
  if (message.startsWith(missingKey)) return { path, part: "key", message: message.slice(missingKey.length) }
  if (message.startsWith(unknownKey)) {
    const known = message.slice(unknownKey.length).split("\0")
    return {
      path,
      part: "key",
      message: `There is no such key${suggest(String(path.at(-1)), known)}`
    }
  }
  const words = types[message] ?? message
  return {
    path,
    part: "value",
    message: words.includes(", got ") ? words : `${words}${got(value, path, words)}`
  }
}

/** The schema's words for types, in those of YAML. */
const types: Readonly<Record<string, string>> = {
  "Expected array": "Expected a list",
  "Expected boolean": "Expected true or false",
  "Expected number": "Expected a number",
  "Expected object": "Expected a mapping (KEY: VALUE)",
  "Expected string": "Expected a string"
}

const got = (value: unknown, path: YamlTree.Path, message: string): string => {
  const found = path.reduce<unknown>(
    (inner, step) =>
      typeof inner === "object" && inner !== null
        ? (inner as Record<string | number, unknown>)[step]
        : undefined,
    value
  )
  return `, got ${describeValue(found)}${hintOf(found, message)}`
}

const hintOf = (found: unknown, message: string): string => {
  if (
    message === types["Expected boolean"] &&
    typeof found === "string" &&
    /^(?:yes|no|on|off|y|n)$/iu.test(found)
  ) {
    return " (yes, no, on and off are strings in YAML 1.2)"
  }
  return message === types["Expected string"] && (typeof found === "number" || typeof found === "boolean")
    ? " (quote it)"
    : ""
}

/** Whole only where it is short. */
export const describeValue = (value: unknown): string => {
  if (value === null || value === undefined) return "nothing (give it a value, or leave the key out)"
  if (Array.isArray(value)) return "a list"
  if (typeof value === "object") return "a mapping"
  if (typeof value !== "string") return String(value)
  return value === YamlTree.clip(value) ? JSON.stringify(value) : `a text of ${[...value].length} characters`
}

/** Which of those may be meant, else all of them where they are few. Of very many, none: comparing takes its time. */
export const suggest = (name: string, all: ReadonlyArray<string>): string => {
  if (all.length > comparedMax) return ""
  const known = all.filter((one) => /^[\w.-]{1,64}$/u.test(one))
  const [nearest] = known
    .map((one) => ({ one, distance: distanceOf(name, one) }))
    .filter(({ distance, one }) => distance <= Math.max(1, Math.floor(Math.min(name.length, one.length) / 3)))
    .toSorted((a, b) => a.distance - b.distance)
  if (nearest !== undefined) return `. Did you mean ${nearest.one}?`
  return known.length === 0 || known.length > namedMax ? "" : `. There are ${known.join(", ")}`
}

const namedMax = 20
const comparedMax = 100

/** Characters to insert, delete or replace; long names are nobody's slip. */
const distanceOf = (a: string, b: string): number => {
  if (a.length > 64 || b.length > 64) return Number.POSITIVE_INFINITY
  let row = Array.from({ length: b.length + 1 }, (_, at) => at)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1) {
      next.push(Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}
