/**
 * Finds the end of an agent in the output of a sandbox that waited for its run. Pure and incremental.
 *
 * When the agent has ended, `cogni-init` kills every other process of the sandbox, then ends both streams with the line
 * `\0TOKEN EXITCODE`. The token is random, of this run, and only in the memory of the host and of `cogni-init`, which no
 * process of the sandbox can read. An agent can therefore neither write this line nor delay it. Both streams have ended
 * when the host knows the exit code, so all of the output is there.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import * as JoinedBytes from "./JoinedBytes.ts"

export interface EndMark {
  /** Reads a chunk. Returns the bytes that are certainly output: of this chunk, and those held back before. */
  readonly push: (chunk: OutputChunk) => OutputChunk | undefined
  /** Exit code, once both streams have ended with it. */
  readonly exitCode: () => number | undefined
  /** Returns what is still held back. It is output, if the streams end without the line. */
  readonly rest: () => ReadonlyArray<OutputChunk>
}

type Channel = OutputChunk["channel"]

const none = new Uint8Array(0)

/** The characters of an exit code and a newline. */
const tailBytesMax = 4

export const make = (token: string): EndMark => {
  const start = new TextEncoder().encode(`\0${token} `)
  const held = new Map<Channel, Uint8Array>()
  const codes = new Map<Channel, number>()

  /** Returns where the line, or what may become it, begins; the length if it does not. */
  const beginning = (bytes: Uint8Array): number => {
    for (let at = bytes.indexOf(0); at !== -1; at = bytes.indexOf(0, at + 1)) {
      const last = Math.min(start.length, bytes.length - at)
      let same = 1
      while (same < last && bytes[at + same] === start[same]) same += 1
      if (same === last) return at
    }
    return bytes.length
  }

  const output = (channel: Channel, bytes: Uint8Array): OutputChunk | undefined =>
    bytes.length === 0 ? undefined : { channel, bytes }

  return {
    push: ({ bytes, channel }) => {
      if (codes.has(channel)) return undefined
      const before = held.get(channel) ?? none
      const joined = before.length === 0 ? bytes : JoinedBytes.of([before, bytes])
      const at = beginning(joined)
      const tail = new TextDecoder().decode(joined.subarray(at + start.length))
      const code = /^(\d{1,3})\n$/u.exec(tail)?.[1]
      if (code !== undefined) codes.set(channel, Number(code))
      // Too long for the line: the token was guessed or printed, which is only output.
      const isOutput = code === undefined && tail.length >= tailBytesMax
      held.set(channel, code !== undefined || isOutput ? none : joined.slice(at))
      return output(channel, isOutput ? joined : joined.subarray(0, at))
    },
    exitCode: () => {
      const code = codes.get("stdout")
      return code === codes.get("stderr") ? code : undefined
    },
    rest: () => [...held].flatMap(([channel, bytes]) => output(channel, bytes) ?? [])
  }
}
