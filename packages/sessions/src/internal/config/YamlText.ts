/**
 * What may be in a text before it is read as YAML: a bounded amount of plain marks, without what would change how the
 * rest of it is read.
 *
 * Tags and directives are looked for here, in the marks: a document of another version has other booleans and merges
 * keys, and a tag makes something else of a value. Pure; costs no more than its bounds, whatever comes.
 */
import { CST, Lexer } from "yaml"

/** Of a whole configuration. */
export const textBytesMax = 1024 * 1024

/** Words, brackets, blanks and line ends: what composing a document costs grows with them. */
export const marksMax = 50_000

/** How deep brackets may be in each other. Our own documents have four levels. */
export const depthMax = 32

/** Something wrong at a place, in UTF-16 units from the beginning of the text. */
export interface TextProblem {
  readonly offset: number
  readonly message: string
}

/** What keeps it from being read at all, else what must not be in it. Empty: read on. */
export const problemsOf = (text: string): ReadonlyArray<TextProblem> => {
  const bytes = text.length > textBytesMax ? Number.POSITIVE_INFINITY : encoder.encode(text).byteLength
  if (bytes > textBytesMax) {
    return [{ offset: 0, message: `Expected a file of at most ${textBytesMax} bytes (1 MiB)` }]
  }
  const character = unreadable.exec(text)
  return character === null
    ? marksOf(text)
    : [{ offset: character.index, message: describeCharacter(character[0]) }]
}

/** Characters that YAML forbids, halves of a character, and the byte order mark. */
// eslint-disable-next-line no-control-regex
const unreadable = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\p{Cs}\ufeff\ufffe\uffff]/u

const encoder = new TextEncoder()

const describeCharacter = (character: string): string => {
  const code = character.codePointAt(0)!
  const name = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`
  return code === 0xfeff
    ? "Expected no byte order mark (U+FEFF; save the file as UTF-8 without one)"
    : `Expected text, got the character ${code === 0 ? "NUL" : name} (the file is damaged, or is no YAML)`
}

const marksOf = (text: string): ReadonlyArray<TextProblem> => {
  const problems: Array<TextProblem> = []
  let offset = 0
  let marks = 0
  let depth = 0
  for (const mark of new Lexer().lex(text)) {
    // Three marks of the lexer's own stand for no character of the text.
    if (mark === CST.DOCUMENT || mark === CST.FLOW_END || mark === CST.SCALAR) continue
    marks += 1
    if (marks > marksMax) {
      return [{ offset, message: `Expected at most ${marksMax} words and marks (the file is too large)` }]
    }
    // No scalar below a key begins as one of those does: a plain one may not, and one of a block with its indentation.
    const type = CST.tokenType(mark)
    depth +=
      type === "flow-map-start" || type === "flow-seq-start"
        ? 1
        : type === "flow-map-end" || type === "flow-seq-end"
          ? -1
          : 0
    if (depth > depthMax) return [{ offset, message: tooDeep }]
    const message = refusals[type ?? ""]
    if (message !== undefined) problems.push({ offset, message })
    offset += mark.length
  }
  return problems
}

/** Said of brackets here, of blocks where they are composed. */
export const tooDeep = `Expected at most ${depthMax} levels in each other`

const refusals: Readonly<Record<string, string>> = {
  tag: "Expected no tag (`!…`): values are what they look like. Quote what is to be a string",
  "directive-line": "Expected no directive (`%…`): this file is read as YAML 1.2"
}
