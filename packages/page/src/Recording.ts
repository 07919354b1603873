/**
 * The recording of a run as the page replays it: pieces of output, each at its time. Pure.
 *
 * A line that is no event is skipped, so a recording that was cut still replays up to there.
 */
import { Option, Schema } from "effect"

export interface Moment {
  /** Milliseconds since the beginning of the recording. */
  readonly at: number
}

interface TimedPiece extends Moment {
  /** Counts from 1. */
  readonly seq: number
  readonly text: string
}

export interface Marker extends Moment {
  readonly label: string
}

export interface Recording {
  /** Output in order. */
  readonly pieces: ReadonlyArray<TimedPiece>
  readonly markers: ReadonlyArray<Marker>
  /** Milliseconds from the first to the last event. */
  readonly durationMs: number
}

/** Maximum number of markers. A run has about ten. */
export const markersMax = 100

/** Longest recording that is replayed, in milliseconds: a limit for hostile intervals. */
const durationMillisMax = 365 * 86_400_000

const decodeHeader = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Struct({ version: Schema.Literal(3) }))
)

const decodeEvent = Schema.decodeUnknownOption(
  Schema.fromJsonString(
    Schema.Tuple([Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)), Schema.String, Schema.String])
  )
)

/** Reads an asciicast v3 file. `undefined`: the text is something else. */
export const parse = (text: string): Recording | undefined => {
  let from = text.indexOf("\n") + 1
  if (from === 0 || Option.isNone(decodeHeader(text.slice(0, from)))) return undefined
  const pieces: Array<TimedPiece> = []
  const markers: Array<Marker> = []
  let at = 0
  for (let to = text.indexOf("\n", from); to >= 0; to = text.indexOf("\n", from)) {
    const event = text[from] === "#" ? undefined : Option.getOrUndefined(decodeEvent(text.slice(from, to)))
    from = to + 1
    if (event === undefined) continue
    const [interval, code, data] = event
    at = Math.min(durationMillisMax, at + interval * 1000)
    if (code === "o") pieces.push({ seq: pieces.length + 1, at, text: data })
    else if (code === "m" && markers.length < markersMax) markers.push({ at, label: data })
  }
  return { pieces, markers, durationMs: at }
}

/** Cuts every pause of a recording, so that something happens at least every `idleMillisMax`. */
export const limited = (recording: Recording, idleMillisMax: number): Recording => {
  const cuts: Array<{ readonly from: number; readonly sum: number }> = []
  let before = 0
  let sum = 0
  const pauses = [...recording.pieces, ...recording.markers].map(({ at }) => at)
  for (const at of [...pauses, recording.durationMs].toSorted((one, other) => one - other)) {
    if (at - before > idleMillisMax) {
      sum += at - before - idleMillisMax
      cuts.push({ from: at, sum })
    }
    before = at
  }
  const cut = (at: number) => at - (cuts[countUntil(cuts, ({ from }) => from <= at) - 1]?.sum ?? 0)
  return {
    pieces: recording.pieces.map((piece) => ({ ...piece, at: cut(piece.at) })),
    markers: recording.markers.map((marker) => ({ ...marker, at: cut(marker.at) })),
    durationMs: cut(recording.durationMs)
  }
}

/** Counts the first items that pass a test, which no item after them does. */
const countUntil = <A>(items: ReadonlyArray<A>, test: (item: A) => boolean): number => {
  let low = 0
  let high = items.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (test(items[middle]!)) low = middle + 1
    else high = middle
  }
  return low
}

/** Returns the number of pieces that are written until a time. */
export const countAt = ({ pieces }: Recording, millis: number): number =>
  countUntil(pieces, ({ at }) => at <= millis)

/** Converts a time of a recording to one of the same recording with other pauses: that of the last piece before it. */
export const translated = (millis: number, from: Recording, to: Recording): number =>
  millis >= from.durationMs ? to.durationMs : (to.pieces[countAt(from, millis) - 1]?.at ?? 0)
