/**
 * Pattern language of grants, the same for tools, models and repositories. Pure.
 *
 * `*` matches any characters except `/`, and `**` any characters at all. Every other character stands for itself, and a
 * pattern matches the whole text or nothing. Matching takes time proportional to the length of the pattern times the
 * length of the text, whatever either contains.
 */
import * as Schema from "effect/Schema"

/** Maximum characters in one pattern. */
export const patternCharactersMax = 500

const printable = (characters: string, expected: string) =>
  Schema.String.check(
    Schema.isMinLength(1),
    Schema.isMaxLength(patternCharactersMax),
    Schema.isPattern(new RegExp(`^${characters}+$`, "u"), { expected })
  )

/** A pattern for names of tools or models. */
export const NamePattern = printable(
  "[\\x21-\\x7e]",
  "a name without spaces, in which * matches any characters except / and ** any characters"
)

/**
 * A pattern for repositories. The server is literal and in lower case: a wildcard in it could match a server that the
 * author of the pattern did not mean. `**` alone matches every repository.
 */
export const RepositoryPattern = Schema.String.check(
  Schema.isMaxLength(patternCharactersMax),
  Schema.isPattern(
    /^(?:\*\*|(?:https:\/\/(?=[^/]*[a-z0-9](?::\d+)?\/)[a-z0-9][a-z0-9.-]*(?::(?!443\/)\d{1,5})?|http:\/\/(?:127\.0\.0\.1|localhost|\[::1\])(?::(?!80\/)\d{1,5})?)?(?:\/[\x21\x22\x24-\x2e\x30-\x3e\x40-\x5b\x5d-\x7e]+)+)$/u,
    {
      expected:
        "https://HOST/PATH, with the host in lower case and without wildcards, or /PATH for a path of this host; " +
        "no slash at the end; * matches any characters except /, and ** any; ** alone matches every repository"
    }
  )
)

/** Returns true if the pattern matches the whole text. */
export const matches = (pattern: string, text: string): boolean => {
  const tokens = tokensOf(pattern)
  // Positions in the pattern that can be reached after the characters read so far.
  let reached = skipped(tokens, new Set([0]))
  for (const character of text) {
    const next = new Set<number>()
    for (const at of reached) {
      const token = tokens[at]
      if (token === undefined) continue
      if (token === anything || (token === inSegment && character !== "/")) next.add(at)
      else if (token === character) next.add(at + 1)
    }
    if (next.size === 0) return false
    reached = skipped(tokens, next)
  }
  return reached.has(tokens.length)
}

/** Returns true if any of the patterns matches the whole text. */
export const matchesAny = (patterns: ReadonlyArray<string>, text: string): boolean =>
  patterns.some((pattern) => matches(pattern, text))

/**
 * Normalizes a repository's URL or path for matching: the server in lower case, no default port, no trailing slash.
 * Returns `undefined` for anything that two programs could parse differently: a user, a query, dot segments, escapes.
 */
export const repositoryText = (url: string): string | undefined => {
  const [, scheme = "", authority = "", path = ""] =
    /^(?:(https?):\/\/([A-Za-z0-9.:[\]-]+))?((?:\/[A-Za-z0-9_~+@=,. -]+)+\/?)$/u.exec(url) ?? []
  if (path === "" || path.split("/").some((segment) => segment === "." || segment === "..")) return undefined
  const place = path.replace(/\/$/u, "")
  if (scheme === "") return place
  if (place.includes(" ") || !URL.canParse(url)) return undefined
  const { host, pathname, protocol } = new URL(url)
  return pathname === path && authority !== "" ? `${protocol}//${host}${place}` : undefined
}

const anything = "**"
const inSegment = "*"

const tokensOf = (pattern: string): ReadonlyArray<string> =>
  pattern.match(/\*{2,}|[^]/gu)?.map(wildcard) ?? []

/** Two or more adjacent stars mean the same. */
const wildcard = (token: string): string => (token.length > 1 && token.startsWith("*") ? anything : token)

/** Adds the positions after wildcards, because a wildcard can match nothing. */
const skipped = (tokens: ReadonlyArray<string>, from: ReadonlySet<number>): Set<number> => {
  const all = new Set(from)
  for (const at of all) if (tokens[at] === anything || tokens[at] === inSegment) all.add(at + 1)
  return all
}
