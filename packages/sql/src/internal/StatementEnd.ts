/**
 * Finds where the first statement of a text of PostgreSQL ends. Pure.
 *
 * It reads as much of the language as hides a semicolon: texts, quoted names, and comments. An unterminated one is the
 * rest of the text. The database decides what a text means. This only decides about the words of a refusal.
 */

/** Alternatives that begin at one place: what hides a semicolon, a name, or one other character. */
const token = new RegExp(
  [
    String.raw`e'(?:[^'\\]|\\.|'')*(?:'|$)`,
    String.raw`'(?:[^']|'')*(?:'|$)`,
    `"(?:[^"]|"")*(?:"|$)`,
    String.raw`\$(?<tag>(?:[a-z_\u0080-\uffff][\w\u0080-\uffff]*)?)\$.*?(?:\$\k<tag>\$|$)`,
    String.raw`--[^\n\r]*`,
    String.raw`(?<comment>\/\*)`,
    String.raw`[a-z_\u0080-\uffff][\w$\u0080-\uffff]*`,
    "."
  ].join("|"),
  "isy"
)

/** Returns what follows the semicolon of the first statement, or `undefined` without one. */
export const restOf = (text: string): string | undefined => {
  let at = 0
  while (at < text.length) {
    token.lastIndex = at
    const found = token.exec(text)
    if (found === null) return undefined
    if (found[0] === ";") return text.slice(at + 1)
    at = found.groups?.["comment"] === undefined ? at + found[0].length : endOfComment(text, at)
  }
  return undefined
}

/** Comments in comments end before the outer one. */
const endOfComment = (text: string, start: number): number => {
  let depth = 0
  for (const { 0: mark, index } of text.slice(start).matchAll(/\/\*|\*\//gu)) {
    depth += mark === "/*" ? 1 : -1
    if (depth === 0) return start + index + 2
  }
  return text.length
}
