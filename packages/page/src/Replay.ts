/** The place in a replay, and how it moves. Pure: the caller says how much time has passed. */
import type { Recording } from "./Recording.ts"

export interface Replay {
  /** Milliseconds since the beginning. */
  readonly at: number
  readonly isPlaying: boolean
  readonly speed: Speed
  /** Grows when the replay goes back: then it needs a new terminal. */
  readonly beginnings: number
}

export const speeds = ["0.5", "1", "2", "5", "10"] as const

export type Speed = (typeof speeds)[number]

/** Step of the seek bar, in milliseconds: 200 steps from its beginning to its end, and at least a tenth of a second. */
const stepOf = ({ durationMs }: Pick<Recording, "durationMs">): number =>
  Math.max(100, Math.ceil(durationMs / 200))

/** The seek bar of a recording. A range input rounds any other value to a step, and reports that as a change. */
export const seekBarOf = (at: number, recording: Pick<Recording, "durationMs">) => {
  const step = stepOf(recording)
  const max = Math.ceil(recording.durationMs / step) * step
  return { step, max, value: at >= recording.durationMs ? max : Math.floor(at / step) * step }
}

export const start: Replay = { at: 0, isPlaying: false, speed: "1", beginnings: 0 }

/** Moves on by the time that has passed, and stops at the end. */
export const passed = (
  replay: Replay,
  millis: number,
  { durationMs }: Pick<Recording, "durationMs">
): Replay => {
  if (!replay.isPlaying) return replay
  const at = Math.min(durationMs, replay.at + Math.max(0, millis) * Number(replay.speed))
  return { ...replay, at, isPlaying: at < durationMs }
}

/** Goes to a time. */
export const sought = (replay: Replay, at: number, { durationMs }: Pick<Recording, "durationMs">): Replay => {
  const to = Math.min(Math.max(0, at), durationMs)
  return { ...replay, at: to, beginnings: replay.beginnings + (to < replay.at ? 1 : 0) }
}

/** Plays or pauses. At the end, plays from the beginning. */
export const toggled = (replay: Replay, recording: Pick<Recording, "durationMs">): Replay =>
  replay.isPlaying
    ? { ...replay, isPlaying: false }
    : { ...(replay.at >= recording.durationMs ? sought(replay, 0, recording) : replay), isPlaying: true }
