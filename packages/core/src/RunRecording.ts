/**
 * The recording of a run: its terminal as an asciicast v3 file, which `asciinema` and other players replay.
 *
 * Nothing is stored for it. It is derived from the journal, whose pieces of output have times: so it has the same
 * text, the same bounds, and ends where the journal does. Output is untrusted: an agent chose it.
 *
 * People pass recordings on. So credentials of well-known forms are masked, as canaries are in the journal.
 */
import { Effect, Option, Stream } from "effect"
import type { RunId } from "./RunId.ts"
import { endOf, type JournalEntry, journalBytesMax, RunJournal } from "./RunJournal.ts"
import * as SecretMask from "./internal/SecretMask.ts"
import type { RunStoreError } from "./RunStore.ts"
import type { RunRecord } from "./RunRecord.ts"
import { StoreUnavailable } from "./SandboxReason.ts"

/** Media type of a recording. */
export const mediaType = "application/x-asciicast"

/** Ending of the name of a file with a recording. */
export const fileExtension = ".cast"

/**
 * Maximum size of a recording. Then no more output is written, but markers and the exit status. It is twice that of a
 * journal, because the carriage return of a line takes as much as its line feed.
 */
const recordingBytesMax = 2 * journalBytesMax

/** A sandbox has no terminal. Programs then write for this size, which a player may change. */
const term = { cols: 80, rows: 24 }

/** Longest text of a marker. */
const labelCharsMax = 200

/** Size that is left for entries other than output. */
const reservedBytes = 256 * 1024

/** Entries of one reading of a journal. They have at most 1.6 million characters of output. */
const readEntriesMax = 100

/** Characters that are converted at a stretch. */
const turnCharsMax = 128 * 1024

/** Entries that wait for the end of what may be a credential, and their characters. With more, it is masked. */
const waitingMax = 1000
const waitingCharsMax = 64 * 1024

/** Converts entries of a journal, in order, to the lines of a recording. */
interface RecordingWriter {
  /** Returns whole lines, each with its line feed; none for an entry that is not part of a recording. */
  readonly add: (entry: JournalEntry) => string
  /** Returns what is still missing: a header without entries, and the end that a killed process could not write. */
  readonly end: (record?: Pick<RunRecord, "endedAt" | "outcome">) => string
}

interface WriterOptions {
  /** Title of the recording. */
  readonly title: string
  /** Maximum size, at least 512 KiB (default 32 MiB). */
  readonly bytesMax?: number | undefined
}

const bytesOf = (text: string) => new TextEncoder().encode(text).byteLength

/**
 * Writes a value as one line. Characters that JSON allows in a line, and that act on a terminal or end a line for some
 * readers, become escapes, so that a file with hostile output can be printed.
 */
const lineOf = (value: unknown): string =>
  `${JSON.stringify(value).replaceAll(
    /[\u007f-\u009f\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )}\n`

/** Converts line feeds as a terminal does for the programs in it. Otherwise each line would begin below the last one's end. */
const shown = (text: string): string => text.toWellFormed().replaceAll("\n", "\r\n")

const labelOf = (text: string): string => text.slice(0, labelCharsMax).toWellFormed().replaceAll(/\s+/gu, " ")

/** Returns the marker of an entry: stages of the run, and what is missing. */
const markerOf = (entry: JournalEntry): string | undefined => {
  switch (entry.type) {
    case "run.started":
      return "run started"
    case "posture.verified":
      return "agent started"
    case "phase.ended":
      return entry.phase === "agent" ? "agent ended" : undefined
    case "exfiltration.suspected":
      return `canary ${entry.evidence.canary} left in ${entry.evidence.channel}`
    case "budget.exhausted":
      return `budget spent: ${entry.exhaustion.budget}`
    case "subagents.exhausted":
      return `share of subagents spent: ${entry.exhaustion.budget}`
    case "output.truncated":
      return `${entry.channel} truncated`
    case "journal.truncated":
      return "output truncated: the journal is full"
    case "run.ended":
      return `run ended: ${entry.reason ?? (entry.exitCode === undefined ? entry.status : `exit code ${entry.exitCode}`)}`
    default:
      return undefined
  }
}

/** Milliseconds since 1970, if they are known. */
type Millis = number | undefined

const millisOf = (at: string): Millis => {
  const millis = Date.parse(at)
  return Number.isNaN(millis) ? undefined : millis
}

/** Makes a writer. Pure, except for its own place. */
export const makeWriter = ({ bytesMax = recordingBytesMax, title }: WriterOptions): RecordingWriter => {
  /** Time of the last line. A clock that goes back does not count, nor does an invalid time. */
  let lastMillis: Millis
  let bytes = 0
  let isBegun = false
  let isEnded = false
  let isFull = false

  const header = (at: Millis) =>
    lineOf({
      version: 3,
      term,
      ...(at === undefined ? {} : { timestamp: Math.floor(at / 1000) }),
      title: labelOf(title)
    })
  const take = (line: string, limit: number): string => {
    const length = bytesOf(line)
    if (bytes + length > limit) return ""
    bytes += length
    return line
  }
  /** Writes an event at a time that is not before the last one's. Its interval counts from the last line. */
  const event = (at: Millis, code: "o" | "m" | "x", data: string, limit = bytesMax): string => {
    const passed = at === undefined || lastMillis === undefined ? 0 : Math.max(0, at - lastMillis)
    const line = take(lineOf([passed / 1000, code, data]), limit)
    if (line !== "") lastMillis = lastMillis === undefined ? at : lastMillis + passed
    return line
  }
  const output = (at: Millis, text: string): string => {
    if (isFull) return ""
    const line = event(at, "o", shown(text), bytesMax - reservedBytes)
    isFull = line === ""
    return isFull ? event(at, "m", "output truncated: the recording is full") : line
  }

  const begin = (at: Millis): string => {
    if (isBegun) return ""
    isBegun = true
    lastMillis = at
    return take(header(at), bytesMax)
  }
  const written = (entry: JournalEntry, text: string): string => {
    const at = millisOf(entry.at)
    if (entry.type === "output.written") return output(at, text)
    const label = markerOf(entry)
    const marker = label === undefined ? "" : event(at, "m", labelOf(label))
    if (entry.type !== "run.ended") return marker
    isEnded = true
    const { exitCode } = entry
    return marker + (exitCode === undefined ? "" : event(at, "x", String(exitCode)))
  }
  const line = makeLine(written)
  const add = (entry: JournalEntry): string => begin(millisOf(entry.at)) + line.add(entry)

  return {
    add,
    end: (record) => {
      const rest = line.rest()
      const end = record === undefined || isEnded ? undefined : endOf(record.outcome)
      return end === undefined || record === undefined
        ? begin(undefined) + rest
        : rest + add({ seq: 1, at: record.endedAt ?? "", ...end })
    }
  }
}

/**
 * Gives entries to a writer with their masked text, in their order and with their own times. An entry waits if its text
 * ends in what may be the beginning of a credential, and so do those after it.
 */
const makeLine = (write: (entry: JournalEntry, text: string) => string) => {
  const masks = { stdout: SecretMask.ofForms(), stderr: SecretMask.ofForms() }
  const certain = { stdout: "", stderr: "" }
  let waiting: Array<JournalEntry> = []
  let waitingChars = 0

  const release = (): string => {
    let lines = ""
    let released = 0
    for (const entry of waiting) {
      if (entry.type !== "output.written") lines += write(entry, "")
      else {
        const { length } = entry.text
        const text = certain[entry.channel]
        if (text.length < length) break
        certain[entry.channel] = text.slice(length)
        waitingChars -= length
        lines += write(entry, text.slice(0, length))
      }
      released += 1
    }
    waiting = waiting.slice(released)
    return lines
  }
  const rest = (): string => {
    certain.stdout += masks.stdout.rest()
    certain.stderr += masks.stderr.rest()
    return release()
  }
  return {
    add: (entry: JournalEntry): string => {
      waiting.push(entry)
      if (entry.type === "output.written") {
        certain[entry.channel] += masks[entry.channel].push(entry.text)
        waitingChars += entry.text.length
      }
      const lines = release()
      const isOver =
        waiting.length > waitingMax || waitingChars > waitingCharsMax || entry.type === "run.ended"
      return isOver ? lines + rest() : lines
    },
    rest
  }
}

/**
 * Opens the recording of a run, as a stream of whole lines that is read from the journal piece by piece. `undefined`:
 * this host has no journal of the run.
 *
 * A run under way has the recording until now, without an end. `record` is the record of a run that is over: it has the
 * end that a killed process could not write.
 */
export const open = Effect.fnUntraced(function* (
  runId: RunId,
  options: Omit<WriterOptions, "title"> & { readonly record?: RunRecord | undefined } = {}
): Effect.fn.Return<Stream.Stream<string, RunStoreError> | undefined, RunStoreError> {
  const journal = yield* RunJournal
  const first = yield* journal.read({ runId, limit: 1 })
  if (first === undefined) return undefined
  const { record, ...more } = options
  return Stream.suspend(() => {
    const writer = makeWriter({ title: runId, ...more })
    return Stream.paginate(
      0,
      Effect.fnUntraced(function* (after) {
        const page = yield* journal.read({ runId, after, limit: readEntriesMax })
        // A recording that ended here would look whole.
        if (page === undefined)
          return yield* new StoreUnavailable({
            detail: "has no journal of the run any more",
            remedy: "The run was deleted while its recording was read"
          })
        const { entries } = page
        let lines = ""
        let turn = 0
        for (const entry of entries) {
          lines += writer.add(entry)
          if (lines.length < turn + turnCharsMax) continue
          // Escapes of hostile output take time, which other runs need too.
          turn = lines.length
          yield* Effect.yieldNow
        }
        return entries.length === readEntriesMax
          ? ([[lines], Option.some(entries.at(-1)!.seq)] as const)
          : ([[lines + writer.end(record)], Option.none<number>()] as const)
      })
    )
  })
})
