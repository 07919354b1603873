/** Bytes that come in pieces, cut into rows where there is a line feed. */

export interface Place {
  readonly number: number
  readonly offset: number
}

/** A row without its end; no bytes where it was too long to be kept. */
export interface Row extends Place {
  readonly bytes: Uint8Array | undefined
}

const lineFeed = 10

/** Cuts bytes into rows; of one that is too long nothing is kept but its length. */
export const makeRows = (rowBytesMax: number, each: (row: Row) => void) => {
  let pieces: Array<Uint8Array> = []
  let bytes = 0
  let offset = 0
  let number = 1
  const keep = (piece: Uint8Array, copied: boolean) => {
    bytes += piece.length
    if (bytes > rowBytesMax) pieces = []
    // A view of somebody's buffer may be filled anew before the row is whole.
    else if (piece.length > 0) pieces.push(copied ? new Uint8Array(piece) : piece)
  }
  const push = (chunk: Uint8Array) => {
    let from = 0
    for (let at = chunk.indexOf(lineFeed); at !== -1; at = chunk.indexOf(lineFeed, from)) {
      keep(chunk.subarray(from, at), false)
      const whole = bytes > rowBytesMax ? undefined : pieces.length === 1 ? pieces[0] : Buffer.concat(pieces)
      pieces = []
      each({ number, offset, bytes: whole })
      offset += bytes + 1
      number += 1
      bytes = 0
      from = at + 1
    }
    if (from < chunk.length) keep(chunk.subarray(from), true)
  }
  return { push, rest: () => ({ number, offset, bytes }) }
}
