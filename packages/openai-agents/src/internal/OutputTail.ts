/** Unread output of a command. A command that floods loses the oldest part of it. Pure. */

const pieceCharacters = 4096

/** The unread end of a text. */
export interface OutputTail {
  readonly push: (text: string) => void
  /** Returns what is unread, and empties it. The first line says how much is missing, in the words of the SDK. */
  readonly take: () => string
}

/** Keeps the last `charactersMax` characters. */
export const make = (charactersMax: number): OutputTail => {
  let pieces: Array<string> = []
  let kept = 0
  let dropped = 0
  return {
    push: (text) => {
      const last = pieces.length - 1
      // A command may write single characters.
      if ((pieces[last]?.length ?? pieceCharacters) < pieceCharacters) pieces[last] += text
      else pieces.push(text)
      kept += text.length
      for (let [first = ""] = pieces; kept > charactersMax; [first = ""] = pieces) {
        const excess = Math.min(first.length, kept - charactersMax)
        kept -= excess
        dropped += excess
        if (excess === first.length) pieces.shift()
        else pieces[0] = first.slice(excess)
      }
    },
    take: () => {
      const text = pieces.join("")
      const said =
        dropped === 0 ? text : `[...${dropped} characters truncated from process output...]\n${text}`
      pieces = []
      kept = 0
      dropped = 0
      return said
    }
  }
}
