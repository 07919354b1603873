/**
 * Handles JSON as text: parses it without losing precision, and repairs it after writing.
 */

/** Keeps the text of a number. Node supports this; the types of this compilation target do not yet. */
const Exact = JSON as unknown as {
  readonly parse: (
    text: string,
    reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown
  ) => unknown
  readonly rawJSON: (text: string) => unknown
}

/** A number is too large for JSON parsers: some read it as infinity, others fail. */
export class OutOfRange extends Error {}

/**
 * Parses JSON; throws if it is invalid.
 *
 * Rounding would change an ID of 20 digits in the input of a tool, so integers that JavaScript cannot represent keep
 * their text. This is slow, and only done if `vastNumbers` of the survey is true.
 */
export const read = (text: string, vastNumbers: boolean): unknown =>
  vastNumbers
    ? Exact.parse(text, (_, value, { source }) => {
        if (typeof value !== "number") return value
        if (!Number.isFinite(value)) throw new OutOfRange("a number is too large")
        return source !== undefined && !Number.isSafeInteger(value) && /^-?\d+$/u.test(source)
          ? Exact.rawJSON(source)
          : value
      })
    : JSON.parse(text)

/** Returns whether a text may have escapes that `wellFormed` replaces, which holds the parsed values twice. */
export const mayBeMended = (text: string): boolean => /\\u(?:0000|d[89a-f])/iu.test(text)

/**
 * Replaces lone surrogates and NUL, which JSON writes as escapes, by U+FFFD. No text needs them, and both have made
 * ledgers lose the row of a call, because Postgres accepts neither.
 */
export const wellFormed = (text: string): string => {
  if (!/\\u(?:0000|d[89a-f])/u.test(text)) return text
  // Matches escaped backslashes too, so that none is mistaken for the beginning of an escape.
  const mended = text.replace(/\\\\|\\u(?:0000|d[89a-f][0-9a-f]{2})/gu, (met) =>
    met.length === 2 ? met : "\ufffd"
  )
  // Names that differed may be equal now: the last one wins.
  return mended === text ? text : JSON.stringify(read(mended, true))
}
