/** Splits bytes that arrive in pieces into rows, at line feeds. */

export interface Place {
  readonly number: number
  readonly offset: number
}

/** A row without its line feed. Its bytes are `undefined` if it was too long to keep. */
export interface Row extends Place {
  readonly bytes: Uint8Array | undefined
}

const lineFeed = 10

const start: Place = { number: 1, offset: 0 }

/** Splits bytes into rows, from the one at `from`. A row longer than `rowBytesMax` is counted but not kept. */
export const makeRows = (rowBytesMax: number, each: (row: Row) => void, from = start) => {
  let pieces: Array<Uint8Array> = []
  let bytes = 0
  let { number, offset } = from
  const keep = (piece: Uint8Array, copied: boolean) => {
    bytes += piece.length
    if (bytes > rowBytesMax) pieces = []
    // The caller may reuse its buffer before the row is complete.
    else if (piece.length > 0) pieces.push(copied ? new Uint8Array(piece) : piece)
  }
  const push = (chunk: Uint8Array) => {
    let next = 0
    for (let at = chunk.indexOf(lineFeed); at !== -1; at = chunk.indexOf(lineFeed, next)) {
      keep(chunk.subarray(next, at), false)
      const whole = bytes > rowBytesMax ? undefined : pieces.length === 1 ? pieces[0] : Buffer.concat(pieces)
      pieces = []
      each({ number, offset, bytes: whole })
      offset += bytes + 1
      number += 1
      bytes = 0
      next = at + 1
    }
    if (next < chunk.length) keep(chunk.subarray(next), true)
  }
  return { push, rest: () => ({ number, offset, bytes }) }
}
