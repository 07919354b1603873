/** Text that a sandbox or an engine chooses, as an error message has it. */

/** Returns a well-formed text of at most this many characters, and then how many it had. */
export const shortened = (text: string, charactersMax: number): string =>
  text.length <= charactersMax
    ? text.toWellFormed()
    : `${text.slice(0, charactersMax).toWellFormed()}… (${text.length} characters)`
