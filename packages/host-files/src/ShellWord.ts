/** Quotes text as one word of a POSIX shell, for commands in messages that a user can type. */

/** Quotes a text if a shell would change or split it. */
export const quoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/u.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
