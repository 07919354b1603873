/** The end of a text that arrives in pieces. Its cost does not depend on how small the pieces are. Pure. */

export interface TextTail {
  readonly add: (piece: string) => void
  /** Returns the last characters of all pieces. */
  readonly text: () => string
}

/** Keeps at most `charsMax` characters for its reader, and twice as many in memory. */
export const make = (charsMax: number): TextTail => {
  let before = ""
  let pieces: Array<string> = []
  let chars = 0
  const text = () => `${before}${pieces.join("")}`.slice(-charsMax)
  return {
    add: (piece) => {
      if (piece === "") return
      pieces.push(piece)
      chars += piece.length
      // Not for each piece: an agent that prints single characters would cost a copy of everything for each.
      if (chars <= charsMax) return
      before = text()
      pieces = []
      chars = 0
    },
    text
  }
}
