/**
 * What a held container says before its agent may start, taken out of its stderr.
 *
 * Pure and incremental. First the report, then `cogni-start` or `cogni-failed REASON`; every byte after that is the
 * agent's own. The entrypoint writes nothing to stdout, so a byte there after the report is the agent's, and says that it
 * has started: stdout and stderr are two pipes, and `cogni-start` can come after megabytes of a flood that nobody reads
 * before the agent has started.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { Bytes } from "effect"
import { lines, reportBytesMax } from "./PostureReport.ts"

export type Said =
  | { readonly _tag: "Reported"; readonly report: string }
  | { readonly _tag: "Started" }
  | { readonly _tag: "Failed"; readonly detail: string }

export interface Handshake {
  /** Takes a chunk in; answers what was said with it and what of it is the agent's. */
  readonly push: (chunk: OutputChunk) => {
    readonly said: ReadonlyArray<Said>
    readonly output: OutputChunk | undefined
  }
  /** What came instead of a report or a start, for an error message. */
  readonly pending: () => string
}

const newline = 0x0a

export const make = (): Handshake => {
  let state: "reporting" | "held" | "over" = "reporting"
  let pending = new Uint8Array(0)
  let heardBytes = 0
  let hasStarted = false
  const report: Array<string> = []
  const decoder = new TextDecoder("utf-8")

  const line = (text: string): Said | undefined => {
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

  return {
    push: (chunk) => {
      if (chunk.channel === "stdout") {
        const said: ReadonlyArray<Said> = state === "held" && !hasStarted ? [{ _tag: "Started" }] : []
        hasStarted ||= said.length > 0
        return { said, output: chunk }
      }
      if (state === "over") return { said: [], output: chunk }
      heardBytes += chunk.bytes.byteLength
      // Whoever talks this much is no entrypoint of ours; it is left to talk until its time is over.
      if (heardBytes > reportBytesMax) return { said: [], output: undefined }
      const joined = Bytes.concat([pending, chunk.bytes])
      const said: Array<Said> = []
      let from = 0
      for (let at = joined.indexOf(newline); at !== -1; at = joined.indexOf(newline, from)) {
        const heard = line(decoder.decode(joined.subarray(from, at)))
        from = at + 1
        if (heard !== undefined) said.push(heard)
        if (heard?._tag === "Started") {
          const rest = joined.subarray(from)
          return { said, output: rest.byteLength === 0 ? undefined : { channel: "stderr", bytes: rest } }
        }
      }
      pending = joined.slice(from)
      return { said, output: undefined }
    },
    pending: () => [...report, decoder.decode(pending)].join("\n").trim().slice(-600)
  }
}
