/**
 * Cuts server-sent events out of a stream of bytes.
 *
 * Bytes are passed on unchanged. Each complete event is shown to a callback, which may withhold it from the client. No
 * byte is examined twice, and the buffer is bounded. Which events are shown, withheld and counted depends only on the
 * bytes, not on how they are split into pieces.
 */

/** Returns whether an answer is a stream of events. */
export const isEvents = (contentType: string): boolean =>
  /^\s*text\/event-stream\s*(?:;|$)/iu.test(contentType)

/** Returns the data of an event. JSON ignores the space that may precede it. */
export const dataOf = (event: Buffer): string =>
  event
    .toString("utf8")
    .split(/\r\n|\r|\n/u)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5))
    .join("\n")

/** How events are handled. */
export interface Options {
  /** Maximum size of an event that is shown. A longer one is passed on without being shown. */
  readonly bytesMax: number
  /** Whether shown events may be withheld. If so, the beginning of an event waits for its end. */
  readonly holds: boolean
  /** Receives an event with data, including the empty line at its end. Returns true to withhold it from the client. */
  readonly look: (event: Buffer) => boolean
}

interface Cutter {
  /** Returns the bytes to pass on now: the piece itself, unless something is buffered or withheld. */
  readonly push: (piece: Uint8Array) => Uint8Array
  /** Ends the stream. Returns the buffered bytes that must still be passed on. */
  readonly end: () => Uint8Array | undefined
  /** Number of events with data. */
  readonly events: () => number
  /** Whether a line was not part of any valid event, or an event was too long. */
  readonly strange: () => boolean
}

export const make = ({ bytesMax, holds, look }: Options): Cutter => {
  const held = makeHeld(bytesMax)
  /** Bytes of the current event in earlier pieces. */
  let eventBytes = 0
  let events = 0
  let strange = false
  let atLineStart = true
  let hasData = false
  let afterReturn = false
  let keptBack = false
  /** How much of the byte order mark was matched; its whole length once no mark can follow. */
  let markBytes = 0
  /** Length of the byte order mark before the current event. */
  let skipBytes = 0

  const begin = (byte: number) => {
    atLineStart = false
    if (byte === letterD) hasData = true
    else if (!lineBegins.has(byte)) strange = true
  }

  /** Ends the current event. Returns its bytes if they span several pieces. */
  const finish = (part: Buffer): Buffer | undefined => {
    const tooLong = eventBytes + part.byteLength > bytesMax
    const earlier = held.take(tooLong ? nothing : part)
    if (tooLong) strange = true
    if (hasData) events += 1
    keptBack = hasData && !tooLong && look((earlier ?? part).subarray(skipBytes)) && holds
    eventBytes = 0
    skipBytes = 0
    hasData = false
    return earlier
  }

  const push = (piece: Uint8Array): Uint8Array => {
    const bytes = asBuffer(piece)
    const lineEnd = makeLineEnds(bytes)
    const out = makeOut(bytes)
    /** Where the current event begins in this piece. */
    let from = 0
    for (let at = 0; at < bytes.byteLength;) {
      const byte = bytes[at]!
      if (byte === lineFeed && afterReturn) {
        afterReturn = false
        at += 1
        // The rest of the line end that completed the previous event.
        if (eventBytes === 0 && at - 1 === from) {
          if (keptBack) out.skip(from, at)
          from = at
        }
      } else if (byte === lineFeed || byte === carriageReturn) {
        afterReturn = byte === carriageReturn
        markBytes = byteOrderMark.byteLength
        at += 1
        if (atLineStart) {
          const long = eventBytes + at - from > bytesMax
          const earlier = finish(bytes.subarray(from, at))
          if (keptBack) out.skip(from, at)
          else if (holds && earlier !== undefined) out.before(earlier, long ? from : at)
          from = at
        } else atLineStart = true
      } else {
        afterReturn = false
        if (byte === byteOrderMark[markBytes]) {
          markBytes += 1
          if (markBytes === byteOrderMark.byteLength) skipBytes = markBytes
          at += 1
        } else {
          markBytes = byteOrderMark.byteLength
          if (atLineStart) begin(byte)
          at = lineEnd(at + 1)
        }
      }
    }
    const tail = bytes.subarray(from)
    eventBytes += tail.byteLength
    if (eventBytes > bytesMax) {
      strange = true
      const earlier = held.take(nothing)
      if (holds && earlier !== undefined) out.before(earlier, from)
    } else if (tail.byteLength > 0) {
      held.add(tail)
      if (holds) out.skip(from, bytes.byteLength)
    }
    return out.read(piece)
  }

  return {
    push,
    end: () => {
      const last = held.take(nothing)
      if (last === undefined) return undefined
      if (hasData) events += 1
      return !(hasData && look(last.subarray(skipBytes))) && holds ? last : undefined
    },
    events: () => events,
    strange: () => strange
  }
}

const lineFeed = 10
const carriageReturn = 13
const letterD = 100

/** First bytes of `data`, `event`, `id` and `retry`, and the colon of a comment. */
const lineBegins: ReadonlySet<number> = new Set(Buffer.from(":deir"))

/** A stream may begin with one. */
const byteOrderMark: Uint8Array = Buffer.from("\ufeff")

const nothing = Buffer.alloc(0)

const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** Returns a function that finds the next line end at or after a position. The position must never decrease. */
const makeLineEnds = (bytes: Buffer): ((from: number) => number) => {
  let feed = -1
  let carriage = -1
  const next = (byte: number, from: number) => {
    const at = bytes.indexOf(byte, from)
    return at === -1 ? bytes.byteLength : at
  }
  return (from) => {
    if (feed < from) feed = next(lineFeed, from)
    if (carriage < from) carriage = next(carriageReturn, from)
    return feed < carriage ? feed : carriage
  }
}

/** Buffers the beginning of an event. It copies the bytes, because the memory of a piece belongs to the socket. */
const makeHeld = (bytesMax: number) => {
  let room = nothing
  let bytes = 0
  const add = (part: Uint8Array) => {
    if (bytes + part.byteLength > room.byteLength) {
      const grown = Buffer.allocUnsafe(
        Math.min(bytesMax, Math.max(1024, 2 * room.byteLength, bytes + part.byteLength))
      )
      grown.set(room.subarray(0, bytes))
      room = grown
    }
    room.set(part, bytes)
    bytes += part.byteLength
  }
  return {
    add,
    /** Returns the buffered bytes with their last part, and empties the buffer; undefined if it was empty. */
    take: (last: Uint8Array): Buffer | undefined => {
      if (bytes === 0) return undefined
      add(last)
      const all = room.subarray(0, bytes)
      room = nothing
      bytes = 0
      return all
    }
  }
}

/** Collects the parts of a piece that are passed on. */
const makeOut = (bytes: Buffer) => {
  const parts: Array<Uint8Array> = []
  /** Start of the bytes to pass on that are not in `parts` yet. */
  let from = 0
  const upTo = (end: number) => {
    if (end > from) parts.push(bytes.subarray(from, end))
  }
  return {
    skip: (start: number, end: number) => {
      upTo(start)
      from = end
    },
    /** Passes on buffered bytes, which include this piece up to `end`. */
    before: (earlier: Uint8Array, end: number) => {
      parts.push(earlier)
      from = end
    },
    read: (piece: Uint8Array): Uint8Array => {
      if (from === 0 && parts.length === 0) return piece
      upTo(bytes.byteLength)
      return parts.length === 1 ? parts[0]! : parts.length === 0 ? nothing : Buffer.concat(parts)
    }
  }
}
