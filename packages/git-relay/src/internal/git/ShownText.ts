/** What an agent or a server said, fit to be shown: one line of bounded length without control characters. */
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"

/** Longer text is cut, and says so. */
export const lineCharactersMax = 400

/** C0, DEL, C1, and what turns the direction of writing. */
const unprintable = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+/gu

export const oneLine = (text: string, charactersMax: number = lineCharactersMax): string =>
  // It becomes part of a sentence, which has a full stop of its own.
  clip(printable(text).replace(/ {2,}/gu, " ").trim().replace(/\.+$/u, ""), charactersMax)

/** Spaces in the place of whatever does not show, or changes how others do. */
export const printable = (text: string): string => text.toWellFormed().replace(unprintable, " ")

/** A command about a path, to type; without the path where a terminal could not show it as it is. */
export const command = (words: string, path: string): string =>
  printable(path) === path ? `${words} ${ShellWord.quoted(path)}` : words

/** Never in the middle of a character; that there was more is seen. */
export const clip = (text: string, charactersMax: number): string => {
  if (text.length <= charactersMax) return text
  const cut = text.slice(0, charactersMax - 1)
  return `${cut.isWellFormed() ? cut : cut.slice(0, -1)}…`
}

/** Bytes of a path as text: UTF-8 where it is, and what cannot be shown as `\xNN`. */
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
