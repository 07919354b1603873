/**
 * Patterns for the packages that a sandbox may install: `npm:left-pad`, `npm:@types/*`, `pypi:requests`. Pure.
 *
 * `*` stands for any characters except `/`, and every other character for itself. So `npm:*` opens no package that has a
 * scope. A pattern matches a whole name or nothing.
 */
import * as Schema from "effect/Schema"

/** Names of the registries, as patterns use them. */
export const registries = ["npm", "pypi", "cargo"] as const

export type Registry = (typeof registries)[number]

/** Maximum number of patterns in one list. */
export const patternsMax = 64

/** npm's maximum length of a name; the other registries allow less. */
const nameCharactersMax = 214

const expected =
  "a registry and a name, such as npm:left-pad, npm:@types/*, pypi:requests or cargo:serde; " +
  "* stands for any characters except /"

export const PackagePattern = Schema.String.check(
  Schema.isMaxLength(nameCharactersMax + 6),
  Schema.isPattern(
    /^(?:npm:(?:@[A-Za-z0-9*._~-]+\/)?[A-Za-z0-9*._~-]+|pypi:[A-Za-z0-9*._-]+|cargo:[A-Za-z0-9*_-]+)$/u,
    { expected }
  ),
  Schema.makeFilter((text: string) => (text.includes("**") ? `Expected ${expected}` : undefined))
)

export type PackagePattern = typeof PackagePattern.Type

/** A list of patterns. */
export const PackagePatterns = Schema.Array(PackagePattern).check(Schema.isMaxLength(patternsMax))

/** Returns the registry of a pattern. */
export const registryOf = (pattern: PackagePattern): Registry =>
  registries.find((registry) => pattern.startsWith(`${registry}:`))!

/** Returns the registries that a list of patterns opens. */
export const opened = (patterns: ReadonlyArray<PackagePattern>): ReadonlyArray<Registry> =>
  registries.filter((registry) => patterns.some((pattern) => registryOf(pattern) === registry))

/**
 * Returns a name in the form in which the registry compares names. PyPI ignores case, and takes `-`, `_` and `.` for
 * the same. crates.io does so with `-` and `_`.
 */
export const canonical = (registry: Registry, name: string): string => {
  switch (registry) {
    case "npm":
      return name
    case "pypi":
      return name.toLowerCase().replaceAll(/[-_.]+/gu, "-")
    case "cargo":
      return name.toLowerCase().replaceAll("_", "-")
  }
}

/** Returns true if a list of patterns allows a package. */
export const allows = (
  patterns: ReadonlyArray<PackagePattern>,
  registry: Registry,
  name: string
): boolean => {
  const asked = segmentsOf(canonical(registry, name))
  return patterns.some(
    (pattern) =>
      registryOf(pattern) === registry && matches(segmentsOf(canonical(registry, nameOf(pattern))), asked)
  )
}

/**
 * Returns true if a list of patterns allows every package that another pattern allows. A wildcard of the inner pattern
 * is only matched by a wildcard of the outer one, which then also matches all that the inner one stands for.
 */
export const covers = (outer: ReadonlyArray<PackagePattern>, inner: PackagePattern): boolean =>
  allows(outer, registryOf(inner), nameOf(inner))

const nameOf = (pattern: PackagePattern): string => pattern.slice(pattern.indexOf(":") + 1)

const segmentsOf = (name: string): ReadonlyArray<string> => name.split("/")

const matches = (pattern: ReadonlyArray<string>, name: ReadonlyArray<string>): boolean =>
  pattern.length === name.length && pattern.every((segment, index) => matchesSegment(segment, name[index]!))

/** Matches greedily: after a mismatch, the last wildcard takes one more character. */
const matchesSegment = (pattern: string, text: string): boolean => {
  let at = 0
  let read = 0
  let wildcardAt = -1
  let readAtWildcard = 0
  while (read < text.length) {
    if (pattern[at] === "*") {
      wildcardAt = at
      readAtWildcard = read
      at += 1
    } else if (pattern[at] === text[read]) {
      at += 1
      read += 1
    } else if (wildcardAt >= 0) {
      readAtWildcard += 1
      read = readAtWildcard
      at = wildcardAt + 1
    } else return false
  }
  while (pattern[at] === "*") at += 1
  return at === pattern.length
}
