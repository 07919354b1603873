/** The arguments of a call that waits, as a person sees them before deciding: whole. Pure. */
import * as Format from "./Format.ts"
import * as VisibleText from "./VisibleText.ts"

/** Longest text with lines and indentation. Beyond it, such as for deep lists, the text of the call itself is shown. */
export const prettyCharsMax = VisibleText.blockCharsMax

export const shown = (text: string): string => {
  const pretty = Format.pretty(text)
  return VisibleText.whole(pretty.length > prettyCharsMax ? text : pretty)
}
