/**
 * Server-sent events, cut out of a stream of bytes.
 *
 * Bytes go on as they came; each event is shown once it is whole, and may then be kept from the client. No byte is
 * looked at twice and no event is remembered beyond a bound, whatever comes and wherever it is cut: what is shown, what
 * is kept back and what is counted depend on the bytes alone.
 */

/** What becomes of the events. */
export interface Options {
  /** A longer event is passed on and not shown. */
  readonly bytesMax: number
  /** Shown events may be kept back, so the beginning of one waits for its end. */
  readonly holds: boolean
  /** An event with data, with the empty line at its end; true keeps it from the client. */
  readonly look: (event: Buffer) => boolean
}

export interface Cutter {
  /** What is to be handed on now: the piece itself, unless something is held or kept back. */
  readonly push: (piece: Uint8Array) => Uint8Array
  /** No more will come; what was held and is to be handed on. */
  readonly end: () => Uint8Array | undefined
  /** Events with data. */
  readonly events: () => number
  /** A line that begins as none of an event does, or an event that is too long. */
  readonly strange: () => boolean
}

export const make = ({ bytesMax, holds, look }: Options): Cutter => {
  const held = makeHeld(bytesMax)
  /** Of the event under way, in earlier pieces. */
  let eventBytes = 0
  let events = 0
  let strange = false
  let atLineStart = true
  let hasData = false
  let afterReturn = false
  let keptBack = false
  /** How much of the byte order mark has come; all of it where none can come any more. */
  let markBytes = 0
  /** Of the byte order mark before the event under way. */
  let skipBytes = 0

  const begin = (byte: number) => {
    atLineStart = false
    if (byte === letterD) hasData = true
    else if (!lineBegins.has(byte)) strange = true
  }

  /** The event under way is whole. Its bytes, where they do not lie in one piece. */
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
    /** Where the event under way begins in this piece. */
    let from = 0
    for (let at = 0; at < bytes.byteLength;) {
      const byte = bytes[at]!
      if (byte === lineFeed && afterReturn) {
        afterReturn = false
        at += 1
        // The rest of the line end that ended the event before.
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

/** `data`, `event`, `id`, `retry`, and the colon of a comment. */
const lineBegins: ReadonlySet<number> = new Set(Buffer.from(":deir"))

/** A stream may begin with one. */
const byteOrderMark: Uint8Array = Buffer.from("\ufeff")

const nothing = Buffer.alloc(0)

const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** Where the next line end is, at or behind a place that never goes back. */
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

/** The beginning of an event. A copy: what a piece lies in belongs to the socket. */
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
    /** All of it with its last part, given away; undefined where nothing was held. */
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

/** What of a piece is handed on. */
const makeOut = (bytes: Buffer) => {
  const parts: Array<Uint8Array> = []
  /** Of what is handed on and not yet in `parts`. */
  let from = 0
  const upTo = (end: number) => {
    if (end > from) parts.push(bytes.subarray(from, end))
  }
  return {
    skip: (start: number, end: number) => {
      upTo(start)
      from = end
    },
    /** What was held, which holds the piece up to here. */
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
