/**
 * Parser for the messages that a held container writes to stderr before its agent starts.
 *
 * Pure and incremental. The posture report comes first, then `cogni-start` or `cogni-failed REASON`. Every byte after
 * that is the agent's output.
 *
 * The entrypoint writes nothing to stdout, so a byte there after the report also means that the agent has started.
 * Stdout and stderr are two pipes: without this rule, the host would wait for `cogni-start` behind megabytes of stdout
 * that it does not read before the agent has started.
 *
 * A container that waits for a run writes nothing between its reports. The host drops such text, up to a limit.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { lines, reportBytesMax } from "./PostureReport.ts"

export type Said =
  | { readonly _tag: "Reported"; readonly report: string }
  | { readonly _tag: "Started" }
  | { readonly _tag: "Failed"; readonly detail: string }

export interface Handshake {
  /** Reads a chunk. Returns the messages it completes, and the rest of it that is the agent's output. */
  readonly push: (chunk: OutputChunk) => {
    readonly said: ReadonlyArray<Said>
    readonly output: OutputChunk | undefined
  }
  /** Expects another report from a container that is held, which a claim asks for. */
  readonly expectReport: () => void
  /** Expects the start of the agent, or output, which a report does not. */
  readonly expectStart: () => void
  /** Returns whether there was output, or anything but a report while only that was expected. */
  readonly hasSpoken: () => boolean
  /**
   * Returns whether a container without a run has written more than any report has. Its first process ends it when the
   * host hangs up, so that neither side works until the pool looks at it.
   */
  readonly hasFlooded: () => boolean
  /** Returns the last 600 characters of what came so far, for an error message. */
  readonly pending: () => string
}

const newline = 0x0a

/** End of a report after another line of it. */
const reportEnd = Buffer.from(`\n${lines.end}\n`)

const indexOf = ({ buffer, byteLength, byteOffset }: Uint8Array, sought: Uint8Array): number =>
  Buffer.from(buffer, byteOffset, byteLength).indexOf(sought)

export const make = ({ isWaiting }: { readonly isWaiting: boolean }): Handshake => {
  let state: "reporting" | "held" | "over" = "reporting"
  let buffer = new Uint8Array(1024)
  let pendingBytes = 0
  let heardBytes = 0
  let hasStarted = false
  let hasSpoken = false
  let mayStart = !isWaiting
  const report: Array<string> = []
  const decoder = new TextDecoder("utf-8")

  const line = (text: string): Said | undefined => {
    if (state === "held" && !mayStart) {
      hasSpoken = true
      return undefined
    }
    if (state === "held") {
      if (text === lines.started) {
        state = "over"
        hasStarted = true
        return { _tag: "Started" }
      }
      return text.startsWith(lines.failed)
        ? { _tag: "Failed", detail: text.slice(lines.failed.length) }
        : undefined
    }
    report.push(text)
    if (text !== lines.end) return undefined
    state = "held"
    return { _tag: "Reported", report: report.join("\n") }
  }

  const pending = () => buffer.subarray(0, pendingBytes)

  /** Keeps the beginning of a line. Doubles its memory when it is full, because a piece may have one byte. */
  const keep = (bytes: Uint8Array) => {
    const neededBytes = pendingBytes + bytes.byteLength
    if (neededBytes > buffer.byteLength) {
      const larger = new Uint8Array(2 * neededBytes)
      larger.set(pending())
      buffer = larger
    }
    buffer.set(bytes, pendingBytes)
    pendingBytes = neededBytes
  }

  /** Ends a report that is too long: a program that is not ours wrote it. Nothing needs to wait for more. */
  const tooMuch = (): ReadonlyArray<Said> => {
    hasSpoken = true
    if (state !== "reporting") return []
    state = "held"
    return [{ _tag: "Reported", report: report.join("\n") }]
  }

  return {
    push: (chunk) => {
      if (chunk.channel === "stdout") {
        hasSpoken = true
        if (!mayStart) {
          // No run reads it, so it would fill the queue before the report that follows.
          heardBytes += chunk.bytes.byteLength
          return { said: [], output: undefined }
        }
        const said: ReadonlyArray<Said> = state === "held" && !hasStarted ? [{ _tag: "Started" }] : []
        hasStarted ||= said.length > 0
        return { said, output: chunk }
      }
      if (state === "over") return { said: [], output: chunk }
      heardBytes += chunk.bytes.byteLength
      // Our entrypoint never writes this much. The rest is dropped until the timeout.
      if (heardBytes > reportBytesMax) return { said: mayStart ? [] : tooMuch(), output: undefined }
      const said: Array<Said> = []
      let from = 0
      // A whole report in one piece, as nearly every one comes: a run waits until it is read.
      const isNew = state === "reporting" && report.length === 0 && pendingBytes === 0
      const end = isNew ? indexOf(chunk.bytes, reportEnd) : -1
      if (end !== -1) {
        from = end + reportEnd.byteLength
        report.push(decoder.decode(chunk.bytes.subarray(0, from - 1)))
        state = "held"
        said.push({ _tag: "Reported", report: report.join("\n") })
      }
      for (let at = chunk.bytes.indexOf(newline, from); at !== -1; at = chunk.bytes.indexOf(newline, from)) {
        keep(chunk.bytes.subarray(from, at))
        const heard = line(decoder.decode(pending()))
        pendingBytes = 0
        from = at + 1
        if (heard !== undefined) said.push(heard)
        if (heard?._tag === "Started") {
          const rest = chunk.bytes.subarray(from)
          return { said, output: rest.byteLength === 0 ? undefined : { channel: "stderr", bytes: rest } }
        }
      }
      keep(chunk.bytes.subarray(from))
      return { said, output: undefined }
    },
    expectReport: () => {
      if (state !== "held") return
      mayStart = false
      state = "reporting"
      report.length = 0
      heardBytes = 0
    },
    expectStart: () => {
      mayStart = true
    },
    hasSpoken: () => hasSpoken,
    hasFlooded: () => !mayStart && heardBytes > reportBytesMax,
    pending: () => [...report, decoder.decode(pending())].join("\n").trim().slice(-600)
  }
}
