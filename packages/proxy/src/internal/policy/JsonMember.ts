/**
 * One member of a JSON object, picked out while the text streams by.
 *
 * Nothing is kept but the member's own text, up to a bound: the object around it may be of any size. It is no check of
 * the JSON; what a broken text yields is text all the same, for a parser to judge.
 */

export interface Reader {
  readonly push: (piece: Uint8Array) => void
  readonly end: () => {
    /** The member's value as it was written; of several the last. Undefined where there is none, or it is too long. */
    readonly text: string | undefined
    /** The object came to its end. */
    readonly complete: boolean
    /** It is no object, something follows it, or the member is too long. */
    readonly strange: boolean
  }
}

/** Of the object itself, not of what lies in it. The name is compared as it is written, without escapes. */
export const make = (name: string, bytesMax: number): Reader => {
  const nameBytes = Buffer.from(`"${name}"`)
  let depth = 0
  let inString = false
  let escaped = false
  let complete = false
  let strange = false
  /** A string that begins now is the name of a member of the object. */
  let atName = false
  /** How much of the name was met; -1 where it is another. */
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
        // Most of an answer is text, of which only the end matters.
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
