/**
 * JSON as text: what can be said of it before it is read, and after it is written.
 */

/** How deep brackets are nested outside strings, whether or not it is JSON. */
export const depthOf = (bytes: Uint8Array): number => {
  let depth = 0
  let deepest = 0
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (byte === 0x22) at = stringEnd(bytes, at)
    else if (byte === 0x7b || byte === 0x5b) deepest = Math.max(deepest, ++depth)
    else if (byte === 0x7d || byte === 0x5d) depth -= 1
  }
  return deepest
}

/** The quote that ends the string that begins here; the end of the bytes where there is none. */
const stringEnd = (bytes: Uint8Array, from: number): number => {
  for (let end = bytes.indexOf(0x22, from + 1); end !== -1; end = bytes.indexOf(0x22, end + 1)) {
    let escapes = 0
    while (bytes[end - 1 - escapes] === 0x5c) escapes += 1
    if (escapes % 2 === 0) return end
  }
  return bytes.length
}

/**
 * JSON writes half of a surrogate pair, and NUL, as escapes. No text has them for a reason, and both have made ledgers
 * lose the row of a call (Postgres takes neither): they go out as U+FFFD.
 */
export const wellFormed = (text: string): string =>
  /\\u(?:0000|d[89a-f])/u.test(text)
    ? text.replace(/(?<!\\)((?:\\\\)*)\\u(?:0000|d[89ab][0-9a-f]{2}|d[c-f][0-9a-f]{2})/gu, "$1\ufffd")
    : text
