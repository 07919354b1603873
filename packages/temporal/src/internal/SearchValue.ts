/** Values of search attributes, as any database of Temporal stores them. Pure. */

/** SQL databases have columns of so many characters, and refuse a longer value. */
export const charsMax = 255

/** Cuts a value to what can be stored. */
export const of = (value: string): string =>
  value.length <= charsMax ? value : [...value].slice(0, charsMax).join("")
