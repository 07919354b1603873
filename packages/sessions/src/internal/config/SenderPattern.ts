/**
 * Who is meant by a sender of the routing: one of a channel, or all that look like a pattern.
 *
 * A pattern is `*`, `?` and `[..]` over characters, and nothing else: a sender is no path, so that neither `/` nor a
 * dot at the beginning is anything special, and what a glob of files would make of `{` or `(` is refused. Matching
 * takes the product of both lengths at most, whatever the pattern, since senders choose their own names. Globs of
 * files become regular expressions, which take the length to the power of the stars. Pure.
 */
import { Result } from "effect"

/** Of the part after the channel. */
const charactersMax = 128

/** What a key of `routing.senders` looks like from afar. */
// eslint-disable-next-line no-control-regex
export const keyPattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}:[^\0-\x1f\x7f]{1,128}$/u

export const keyExpected =
  "Expected CHANNEL:SENDER, such as telegram:12345 or slack:U0*: " +
  `the name of a channel, a colon, and 1 to ${charactersMax} characters`

export interface SenderPattern {
  readonly channel: string
  /** As it was written, without the channel. */
  readonly text: string
  /** The one sender that is meant, where it is one. */
  readonly exact: string | undefined
  readonly matches: (senderId: string) => boolean
}

type Mark =
  | { readonly _tag: "One"; readonly accepts: (character: string) => boolean; readonly literal?: string }
  | { readonly _tag: "Many" }

/** Of a key such as `slack:U0*`; the failure is a sentence. */
export const parse = (key: string): Result.Result<SenderPattern, string> => {
  if (!keyPattern.test(key)) return Result.fail(keyExpected)
  const channel = key.slice(0, key.indexOf(":"))
  const text = key.slice(channel.length + 1)
  return Result.map(marksOf([...text]), (marks) => {
    const literals = marks.flatMap((mark) =>
      mark._tag === "One" && mark.literal !== undefined ? [mark.literal] : []
    )
    const exact = literals.length === marks.length ? literals.join("") : undefined
    return {
      channel,
      text,
      exact,
      matches:
        exact === undefined ? (senderId) => matches(marks, [...senderId]) : (senderId) => senderId === exact
    }
  })
}

/** Of two that both match, the longer goes first; of two as long, the one whose characters come first. */
export const compare = (a: SenderPattern, b: SenderPattern): number => {
  const [charactersOfA, charactersOfB] = [[...a.text], [...b.text]]
  if (charactersOfA.length !== charactersOfB.length) return charactersOfB.length - charactersOfA.length
  for (const [at, character] of charactersOfA.entries()) {
    const difference = character.codePointAt(0)! - charactersOfB[at]!.codePointAt(0)!
    if (difference !== 0) return difference
  }
  return 0
}

const special = new Set(["*", "?", "[", "]", "{", "}", "(", ")", "|", "!", "\\"])

const literal = (character: string): Mark => ({
  _tag: "One",
  literal: character,
  accepts: (other) => other === character
})

const escaped = (characters: ReadonlyArray<string>, at: number): Result.Result<string, string> => {
  const next = characters[at + 1]
  return next !== undefined && special.has(next)
    ? Result.succeed(next)
    : Result.fail("Expected one of * ? [ ] { } ( ) | ! \\ after a backslash")
}

const marksOf = (characters: ReadonlyArray<string>): Result.Result<ReadonlyArray<Mark>, string> => {
  const marks: Array<Mark> = []
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at]!
    if (character === "*") {
      if (marks.at(-1)?._tag !== "Many") marks.push({ _tag: "Many" })
    } else if (character === "?") {
      marks.push({ _tag: "One", accepts: () => true })
    } else if (character === "\\") {
      const next = escaped(characters, at)
      if (Result.isFailure(next)) return Result.fail(next.failure)
      marks.push(literal(next.success))
      at += 1
    } else if (character === "[") {
      const found = classOf(characters, at + 1)
      if (Result.isFailure(found)) return Result.fail(found.failure)
      marks.push({ _tag: "One", accepts: found.success.accepts })
      at = found.success.end
    } else if (special.has(character) && (character !== "!" || at === 0)) {
      return Result.fail(
        `Expected a pattern of * ? and [..] alone, got ${character} (with a backslash before it, it stands for itself)`
      )
    } else marks.push(literal(character))
  }
  return Result.succeed(marks)
}

/** From behind the opening bracket to the closing one. */
const classOf = (
  characters: ReadonlyArray<string>,
  from: number
): Result.Result<{ readonly accepts: (character: string) => boolean; readonly end: number }, string> => {
  const negated = characters[from] === "!" || characters[from] === "^"
  const members: Array<{ readonly character: string; readonly isDash: boolean }> = []
  let at = negated ? from + 1 : from
  for (; at < characters.length && characters[at] !== "]"; at += 1) {
    const character = characters[at]!
    if (character === "[")
      return Result.fail("Expected no [ inside [..] (with a backslash before it, it stands for itself)")
    if (character === "\\") {
      const next = characters[at + 1] === "-" ? Result.succeed("-") : escaped(characters, at)
      if (Result.isFailure(next)) return Result.fail(next.failure)
      members.push({ character: next.success, isDash: false })
      at += 1
    } else members.push({ character, isDash: character === "-" })
  }
  if (at >= characters.length) return Result.fail("Expected a ] that closes the [")
  if (members.length === 0) return Result.fail("Expected at least one character in [..]")
  const ranges: Array<readonly [from: number, to: number]> = []
  for (let member = 0; member < members.length; member += 1) {
    const low = members[member]!.character.codePointAt(0)!
    const high =
      members[member + 1]?.isDash === true ? members[member + 2]?.character.codePointAt(0) : undefined
    if (high !== undefined && high < low)
      return Result.fail("Expected a range in [..] that goes upwards, such as a-z")
    ranges.push([low, high ?? low])
    if (high !== undefined) member += 2
  }
  return Result.succeed({
    end: at,
    accepts: (character) => {
      const code = character.codePointAt(0)!
      return ranges.some(([low, high]) => low <= code && code <= high) !== negated
    }
  })
}

/** Only the last `*` is ever tried again, which is enough, and keeps the cost at the product of the lengths. */
const matches = (marks: ReadonlyArray<Mark>, characters: ReadonlyArray<string>): boolean => {
  let mark = 0
  let character = 0
  let many: { readonly mark: number; character: number } | undefined
  while (character < characters.length) {
    const current = marks[mark]
    if (current?._tag === "Many") {
      many = { mark, character }
      mark += 1
    } else if (current !== undefined && current.accepts(characters[character]!)) {
      mark += 1
      character += 1
    } else if (many !== undefined) {
      many.character += 1
      mark = many.mark + 1
      character = many.character
    } else return false
  }
  return marks.slice(mark).every(({ _tag }) => _tag === "Many")
}
