/** Text as one word of a POSIX shell, for commands that a message tells a user to type. */

/** Quoted where a shell would read it as anything else than itself. */
export const quoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/u.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
