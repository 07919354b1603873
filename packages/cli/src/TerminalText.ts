/**
 * Text of unknown origin on its way to a terminal.
 *
 * An agent is not trusted with the terminal of the person who watches it: escape sequences could change what was said
 * before, or what is typed next, and invisible characters make text read as something else. On a terminal, all of them
 * are made visible. Into a pipe or a file every byte goes as it came. Pure; `Output` applies it to every write.
 */

/**
 * C0 but tab, line feed and a carriage return that ends a line; DEL; C1; line separators and annotations; what Unicode
 * calls ignorable, which includes marks that reorder text, but for the two joiners that scripts and emoji need and the
 * mark of a coloured emoji; signs that are blank, and controls of hieroglyphs.
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

/** Every control character and every invisible one as something one can see. */
export const visible = (text: string): string => text.replaceAll(hidden, caret)

/** The same for JSON: with its own escapes, so that it stays the same JSON. */
export const visibleJson = (json: string): string => json.replaceAll(hidden, escaped)

/** The same, on one line, without blanks around it. */
export const oneLine = (text: string): string => visible(text.replaceAll(/\s+/gu, " ").trim())

/** Cut at a width, with an ellipsis. */
export const clip = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`

/** Break at blanks, at a width; longer words stand alone. */
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
 * What is written, piece by piece, to visible text. A character, or the end of a line in two characters, may be cut
 * between two pieces; a carriage return at the very end is held back.
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

/** Columns side by side, each as wide as its widest cell; the last is free. */
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
