/** The arguments of a call that waits, as a person sees them before deciding: whole. Pure. */
import * as Format from "./Format.ts"
import * as VisibleText from "./VisibleText.ts"

/** Longest text with lines and indentation. Beyond it, the text of the call itself is shown. */
export const prettyCharsMax = VisibleText.blockCharsMax

/** Deepest JSON with indentation. That of deeper JSON could take a thousand times the space of its text. */
const depthMax = 32

const isDeep = (text: string): boolean => {
  let depth = 0
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/gu)) {
    if (token === "[" || token === "{") depth += 1
    if (token === "]" || token === "}") depth -= 1
    if (depth > depthMax) return true
  }
  return false
}

export const shown = (text: string): string => {
  const pretty = isDeep(text) ? text : Format.pretty(text)
  return VisibleText.whole(pretty.length > prettyCharsMax ? text : pretty)
}
