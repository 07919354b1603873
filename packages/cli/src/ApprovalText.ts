/**
 * A tool call that waits for an approval, as text for a terminal. Pure.
 *
 * An agent chose the arguments. They are shown whole, as JSON in which hidden characters are escapes, and each row of
 * them begins with a bar. So no row can look like a line of ours: it neither ends early nor is wrapped by the terminal.
 */
import type { Approval } from "@cogni/sandbox-core/Approval"
import { oneLine, visibleJson } from "./TerminalText.ts"

type Call = Pick<Approval, "arguments" | "effect" | "tool">

const bar = "│ "

/** Narrowest terminal that rows are made for. */
const columnsMin = 20

/** Joiners and a selector that are hidden, too, and that {@link visibleJson} leaves where scripts need them. */
const joiners = /\u200c|\u200d|\ufe0f/gu

const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16)}`

/** Columns that a character may take. Unknown ones count as the widest, so a row may be shorter than needed. */
const widthOf = (character: string): number => (character >= " " && character <= "~" ? 1 : 2)

/** Returns the arguments in rows of at most `columns` columns. */
export const rows = (text: string, columns: number): ReadonlyArray<string> => {
  const widthMax = Math.max(columns, columnsMin) - bar.length - 1
  const all: Array<string> = []
  let row = ""
  let width = 0
  for (const character of visibleJson(text)
    .replaceAll(joiners, escaped)
    .replaceAll(/[\t\r\n]/gu, " ")) {
    const more = widthOf(character)
    if (width + more > widthMax) {
      all.push(row)
      row = ""
      width = 0
    }
    row += character
    width += more
  }
  return [...all, row].map((one) => `${bar}${one}`)
}

/** Names the call: its tool, its effect, and the size of its arguments. */
export const summary = ({ arguments: text, effect, tool }: Call): string =>
  `${oneLine(tool)} (${effect}), ${new TextEncoder().encode(text).length} bytes of arguments`

/** Lines about a call: what it is, its arguments, and again what it is. */
export const block = (call: Call, columns: number): ReadonlyArray<string> => [
  `┌ ${summary(call)}:`,
  ...rows(call.arguments, columns),
  `└ ${summary(call)}`
]
