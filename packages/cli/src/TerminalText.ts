/**
 * Makes untrusted text safe for a terminal.
 *
 * An agent must not control the terminal of the person who watches it. Escape sequences could change earlier output or
 * the next input, and invisible characters can make text look like something else. On a terminal, all of them become
 * visible. Pipes and files receive every byte unchanged. Pure; `Output` applies it to every write.
 */

/**
 * Characters that act on a terminal or are invisible: C0, DEL and C1; line separators, annotations, blank signs, and
 * controls of hieroglyphs; and characters that Unicode calls ignorable, which includes marks that reorder text.
 *
 * Excluded are tab, line feed, a carriage return that ends a line, the two joiners that scripts and emoji need, and the
 * variation selector of a coloured emoji.
 */
const hidden =
  // eslint-disable-next-line no-control-regex
  /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u2800\ufff9-\ufffb\u{13430}-\u{1343f}\u{1d159}]|\u{16fe4}|(?!\u200c|\u200d|\ufe0f)\p{Default_Ignorable_Code_Point}|\r(?!\n)/gu

const caret = (character: string): string => {
  const code = character.codePointAt(0)!
  if (code < 0x20) return `^${String.fromCharCode(code + 0x40)}`
  return code === 0x7f ? "^?" : `\\u{${code.toString(16)}}`
}

const escaped = (character: string): string =>
  Array.from(
    { length: character.length },
    (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`
  ).join("")

/** Replaces every control character and every invisible one with visible text. */
export const visible = (text: string): string => text.replaceAll(hidden, caret)

/** Replaces the same characters in JSON with JSON escapes, which do not change its value. */
export const visibleJson = (json: string): string => json.replaceAll(hidden, escaped)

/** Makes text visible on one line, without surrounding whitespace. */
export const oneLine = (text: string): string => visible(text.replaceAll(/\s+/gu, " ").trim())

/** Truncates text to a width, with an ellipsis. */
export const clip = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`

/** Wraps text at spaces to a width. A longer word gets its own line. */
export const wrap = (text: string, width: number): ReadonlyArray<string> =>
  text.split("\n").flatMap((line) => {
    const lines: Array<string> = []
    let current = ""
    for (const word of line.split(" ")) {
      if (current !== "" && current.length + 1 + word.length > width) {
        lines.push(current)
        current = word
      } else current = current === "" ? word : `${current} ${word}`
    }
    return [...lines, current]
  })

/**
 * Makes a function that converts a stream to visible text, piece by piece. A character, or a line ending of two
 * characters, may be split between two pieces. A carriage return at the very end is held back.
 */
export const makeFilter = (): ((data: string | Uint8Array) => string) => {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true })
  let held = ""
  return (data) => {
    const text =
      held +
      (typeof data === "string" ? `${decoder.decode()}${data}` : decoder.decode(data, { stream: true }))
    held = text.endsWith("\r") ? "\r" : ""
    return visible(held === "" ? text : text.slice(0, -1))
  }
}

/** Aligns columns. Each is as wide as its widest cell, and the last is not padded. */
export const columns = (rows: ReadonlyArray<ReadonlyArray<string>>, indent = ""): ReadonlyArray<string> => {
  const widths = rows.reduce<ReadonlyArray<number>>(
    (widest, row) =>
      Array.from({ length: Math.max(widest.length, row.length) }, (_, at) =>
        Math.max(widest[at] ?? 0, row[at]?.length ?? 0)
      ),
    []
  )
  return rows.map((row) =>
    `${indent}${row.map((cell, at) => (at === row.length - 1 ? cell : cell.padEnd(widths[at]!))).join("  ")}`.trimEnd()
  )
}
