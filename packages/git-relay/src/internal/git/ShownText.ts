/** Makes text from an agent or a server safe to display: one line of limited length, without control characters. */
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"

/** Maximum length of a line. Longer text is cut, and the cut is marked. */
export const lineCharactersMax = 400

/** C0, DEL, C1, and characters that change the direction of writing. */
const unprintable = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+/gu

export const oneLine = (text: string, charactersMax: number = lineCharactersMax): string =>
  // Without its full stop, because the text becomes part of a sentence.
  clip(printable(text).replace(/ {2,}/gu, " ").trim().replace(/\.+$/u, ""), charactersMax)

/** Replaces characters that are invisible, or that change how others are displayed, with spaces. */
export const printable = (text: string): string => text.toWellFormed().replace(unprintable, " ")

/**
 * Returns a command about a path, for the user to type. Omits the path if a terminal could not display it unchanged.
 */
export const command = (words: string, path: string): string =>
  printable(path) === path ? `${words} ${ShellWord.quoted(path)}` : words

/** Cuts text, but never inside a character, and marks the cut with `…`. */
export const clip = (text: string, charactersMax: number): string => {
  if (text.length <= charactersMax) return text
  const cut = text.slice(0, charactersMax - 1)
  return `${cut.isWellFormed() ? cut : cut.slice(0, -1)}…`
}

/** Decodes the bytes of a path as UTF-8 if they are valid, and escapes bytes that cannot be displayed as `\xNN`. */
export const showPath = (latin1: string): string => {
  const bytes = Buffer.from(latin1, "latin1")
  const text = bytes.toString("utf8")
  const readable = Buffer.from(text, "utf8").equals(bytes)
    ? text
    : latin1.replace(/[\u0080-\u00ff]/gu, escape)
  const shown = readable.replace(unprintable, (run) => [...run].map(escape).join(""))
  return clip(shown, lineCharactersMax)
}

const escape = (character: string): string => {
  const code = character.codePointAt(0) ?? 0
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`
}
