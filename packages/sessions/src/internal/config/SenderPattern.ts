/**
 * Sender patterns of routing rules. A pattern matches one sender of a channel, or all that have a form.
 *
 * A pattern consists of characters, `*`, `?` and `[..]`. A sender is not a path: `/` and a leading dot are ordinary
 * characters, and characters that are special only in file globs, such as `{` and `(`, are refused. Matching takes at
 * most the product of both lengths, whatever the pattern, because senders choose their own names. File globs become
 * regular expressions, which can take the length to the power of the number of stars. Pure.
 */
import { Result } from "effect"

/** Rough form of a key of `routing.senders`. */
// eslint-disable-next-line no-control-regex
export const keyPattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}:[^\0-\x1f\x7f]{1,128}$/u

export const keyExpected =
  "Expected CHANNEL:SENDER, such as telegram:12345 or slack:U0*: " +
  "the name of a channel, a colon, and 1 to 128 characters"

export interface SenderPattern {
  readonly channel: string
  /** The pattern as written, without the channel. */
  readonly text: string
  /** The sender, if the pattern matches exactly one. */
  readonly exact: string | undefined
  readonly matches: (senderId: string) => boolean
}

/** One part of a pattern: `*`, a literal character, or a test of one character. */
type Mark = "*" | { readonly literal: string } | RegExp

/** Parses a key such as `slack:U0*`, or fails with a message. */
export const parse = (key: string): Result.Result<SenderPattern, string> => {
  if (!keyPattern.test(key)) return Result.fail(keyExpected)
  const channel = key.slice(0, key.indexOf(":"))
  const text = key.slice(channel.length + 1)
  return Result.map(marksOf(text), (marks) => {
    const literals = marks.flatMap((mark) =>
      typeof mark === "object" && "literal" in mark ? [mark.literal] : []
    )
    const exact = literals.length === marks.length ? literals.join("") : undefined
    return {
      channel,
      text,
      exact,
      matches: exact === undefined ? (sender) => matches(marks, [...sender]) : (sender) => sender === exact
    }
  })
}

/** Orders patterns that match the same sender: the longer first, and those of equal length by code point. */
export const compare = (a: SenderPattern, b: SenderPattern): number => {
  const [charactersOfA, charactersOfB] = [[...a.text], [...b.text]]
  if (charactersOfA.length !== charactersOfB.length) return charactersOfB.length - charactersOfA.length
  const at = charactersOfA.findIndex((character, index) => character !== charactersOfB[index])
  return at === -1 ? 0 : charactersOfA[at]!.codePointAt(0)! - charactersOfB[at]!.codePointAt(0)!
}

const special = String.raw`*?[\]{}()|!\\`

/** One mark: a `*`, a `?`, a class, a special character behind a backslash, or any other character. */
const markPattern = new RegExp(
  String.raw`(?<star>\*+)|(?<any>\?)|\[(?<not>[!^]|(?![!^]))(?<class>(?:\\[${special}-]|[^\\\][])+)\]|\\(?<escaped>[${special}])|(?<plain>(?<!^)!|[^${special}])`,
  "uy"
)

const marksOf = (text: string): Result.Result<ReadonlyArray<Mark>, string> => {
  const marks: Array<Mark> = []
  markPattern.lastIndex = 0
  let at = 0
  while (at < text.length) {
    markPattern.lastIndex = at
    const found = markPattern.exec(text)?.groups
    if (found === undefined) return Result.fail(markExpected(text, at))
    at = markPattern.lastIndex
    const literal = found["escaped"] ?? found["plain"]
    if (literal !== undefined) marks.push({ literal })
    else if (found["star"] !== undefined) marks.push("*")
    else if (found["any"] !== undefined) marks.push(/^.$/su)
    else {
      try {
        // Escapes mean the same in a regular expression, except for `!`.
        const members = found["class"]!.replaceAll(/\\(.)/gu, (escaped, one) => (one === "!" ? one : escaped))
        marks.push(new RegExp(`^[${found["not"] === "" ? "" : "^"}${members}]$`, "u"))
      } catch {
        return Result.fail("Expected an ascending range in [..], such as a-z")
      }
    }
  }
  return Result.succeed(marks)
}

const markExpected = (text: string, at: number): string =>
  `Expected a pattern of *, ? and [..] alone, got ${String.fromCodePoint(text.codePointAt(at)!)} at character ${at + 1} ` +
  "(put a backslash before it to match it literally)"

const accepts = (mark: Mark | undefined, character: string): boolean =>
  mark instanceof RegExp
    ? mark.test(character)
    : mark !== undefined && mark !== "*" && mark.literal === character

/** Only the last `*` is ever tried again. This is sufficient, and bounds the cost by the product of the lengths. */
const matches = (marks: ReadonlyArray<Mark>, characters: ReadonlyArray<string>): boolean => {
  let mark = 0
  let character = 0
  let many: { readonly mark: number; character: number } | undefined
  while (character < characters.length) {
    if (marks[mark] === "*") {
      many = { mark, character }
      mark += 1
    } else if (accepts(marks[mark], characters[character]!)) {
      mark += 1
      character += 1
    } else if (many !== undefined) {
      many.character += 1
      mark = many.mark + 1
      character = many.character
    } else return false
  }
  return marks.slice(mark).every((rest) => rest === "*")
}
