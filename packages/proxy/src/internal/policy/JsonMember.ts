/**
 * Extracts one member of a JSON object from a stream.
 *
 * Only the text of the member is kept, up to a bound, so the object may have any size. The JSON is not validated:
 * malformed JSON also yields text, for a parser to check.
 */

export interface Reader {
  readonly push: (piece: Uint8Array) => void
  readonly end: () => {
    /** The member's value as written, the last one if there are several. Undefined if it is missing or too long. */
    readonly text: string | undefined
    /** Whether the object is complete. */
    readonly complete: boolean
    /** Whether the text is not an object, something follows it, or the member is too long. */
    readonly strange: boolean
  }
}

/** Creates a reader for a member of the outer object. The name is compared as written, without decoding escapes. */
export const make = (name: string, bytesMax: number): Reader => {
  const nameBytes = Buffer.from(`"${name}"`)
  let depth = 0
  let inString = false
  let escaped = false
  let complete = false
  let strange = false
  /** Whether the next string is the name of a member of the object. */
  let atName = false
  /** Number of bytes of the name that matched; -1 if the name differs. */
  let met = -1
  let taking = false
  let taken: Array<number> = []
  let text: string | undefined

  const take = (byte: number) => {
    if (taken.length <= bytesMax) taken.push(byte)
  }
  const close = () => {
    if (taking) {
      const tooLong = taken.length > bytesMax
      text = tooLong ? undefined : Buffer.from(taken).toString("utf8")
      strange ||= tooLong
    }
    taking = false
    taken = []
  }

  const quoted = (byte: number) => {
    if (taking) take(byte)
    else if (met >= 0) met = byte === nameBytes[met] ? met + 1 : -1
    if (escaped) escaped = false
    else if (byte === backslash) escaped = true
    else if (byte === quote) inString = false
  }

  const structure = (byte: number) => {
    switch (byte) {
      case quote:
        inString = true
        met = atName ? 1 : -1
        atName = false
        break
      case openBrace:
      case openBracket:
        depth += 1
        if (depth === 1) atName = true
        break
      case closeBrace:
      case closeBracket:
        depth -= 1
        if (depth === 0) {
          close()
          complete = true
        }
        break
      case comma:
        if (depth === 1) {
          close()
          atName = true
        }
        break
      case colon:
        if (met === nameBytes.length) {
          taking = true
          met = -1
          return
        }
        break
    }
    if (taking) take(byte)
  }

  return {
    push: (piece) => {
      for (let at = 0; at < piece.length; at++) {
        // Most of an answer is strings, of which only the end matters.
        if (inString && !escaped && met < 0 && (!taking || taken.length > bytesMax))
          while (at < piece.length && piece[at] !== quote && piece[at] !== backslash) at++
        const byte = piece[at]
        if (byte === undefined) return
        if (inString) quoted(byte)
        else if (depth > 0 || (byte === openBrace && !complete)) structure(byte)
        else if (!isSpace(byte)) strange = true
      }
    },
    end: () => ({ text, complete, strange })
  }
}

const quote = 34
const comma = 44
const colon = 58
const openBracket = 91
const backslash = 92
const closeBracket = 93
const openBrace = 123
const closeBrace = 125

const isSpace = (byte: number): boolean => byte === 32 || byte === 10 || byte === 13 || byte === 9
