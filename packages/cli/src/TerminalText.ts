/**
 * Text of unknown origin on its way to a terminal.
 *
 * An agent is not trusted with the terminal of whoever watches it: escape sequences could change what was said before,
 * or what is typed next. On a terminal, control characters are made visible. Into a pipe or a file every byte goes as
 * it came. Pure.
 */

const caret = (character: string): string => {
  const code = character.codePointAt(0)!
  if (code < 0x20) return `^${String.fromCharCode(code + 0x40)}`
  return code === 0x7f ? "^?" : `\\u{${code.toString(16)}}`
}

// Control characters but tab, line feed and carriage return; C1; marks that reorder what is read.
// eslint-disable-next-line no-control-regex
const hidden = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu

/** Every control character as something one can see. @category converting */
export const visible = (text: string): string => text.replaceAll(hidden, caret)

/** The same, on one line, without blanks around it. @category converting */
export const oneLine = (text: string): string => visible(text.replaceAll(/\s+/gu, " ").trim())

/** Cut at a width, with an ellipsis. @category converting */
export const clip = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`

/** Break at blanks, at a width; longer words stand alone. @category converting */
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

/** Bytes as they come to visible text; a character may be cut between two of them. @category constructors */
export const makeDecoder = (): ((bytes: Uint8Array) => string) => {
  const decoder = new TextDecoder("utf-8")
  return (bytes) => visible(decoder.decode(bytes, { stream: true }))
}

/** Columns side by side, each as wide as its widest cell; the last is free. @category converting */
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
