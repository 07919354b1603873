/**
 * Text that an agent, a repository or a model chose, as text that a person can trust to see. Pure.
 *
 * React renders text and never markup. This makes visible what text can hide by itself: characters that reverse the
 * direction of what follows, that take no space, or that control a terminal. Long texts are cut, except by `whole`.
 */

/** Longest text in a line, such as a name. */
export const lineCharsMax = 300

/** Longest text in a block, such as a message. */
export const blockCharsMax = 100_000

/**
 * Controls except tab and line feed, separators of lines, and characters that are not visible or change the direction
 * of text. The one that turns a symbol into an emoji may stay where it does so.
 */
const hidden =
  /(?<!\p{Extended_Pictographic}(?=\ufe0f))(?![\t\n])[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}\p{Default_Ignorable_Code_Point}\u2800\ufff9-\ufffb]/gu

const shown = (character: string) =>
  `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`

/** Marks pile up on one letter and would cover the lines around it. */
const marksMax = 4
const manyMarks = new RegExp(`\\p{M}{${marksMax + 1},}`, "gu")
const piled = new RegExp(`(\\p{M}{${marksMax}})\\p{M}+`, "gu")

const visible = (text: string, charsMax: number): string => {
  const cut = text.length > charsMax
  // A character outside the basic plane has two units: never keep only one.
  const kept = cut ? text.slice(0, charsMax).replace(/[\ud800-\udbff]$/u, "") : text
  const marked = kept.toWellFormed().replaceAll(piled, "$1⟨marks⟩").replaceAll(hidden, shown)
  return cut ? `${marked}… (${(text.length - kept.length).toLocaleString("en-US")} more characters)` : marked
}

/** Text in one line. */
export const line = (text: string, charsMax = lineCharsMax): string =>
  visible(text.slice(0, charsMax * 2).replaceAll(/\r\n|[\n\r\t]/gu, " ") + text.slice(charsMax * 2), charsMax)

/** Text with its lines. */
export const block = (text: string, charsMax = blockCharsMax): string =>
  visible(text.replaceAll("\r\n", "\n"), charsMax)

/**
 * Text with its lines, without any cut: each character is visible or shown as its code. For texts about which a person
 * decides, of limited size.
 */
export const whole = (text: string): string =>
  text
    .replaceAll(/\p{Surrogate}/gu, shown)
    .replaceAll(manyMarks, (marks) =>
      Array.from(marks, (mark, index) => (index < marksMax ? mark : shown(mark))).join("")
    )
    .replaceAll(hidden, shown)

/** One line of code, with its tabs. */
export const code = (text: string, charsMax = lineCharsMax): string =>
  visible(text.replaceAll(/\r?\n/gu, " "), charsMax)
