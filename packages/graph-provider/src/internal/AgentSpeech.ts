/** What one agent says during one run: bytes in, events out, and an answer at the end. */
import type { Result } from "effect"
import type { AgentAnswer, AgentEvent, AgentFailed, AgentReader } from "../agents/AgentOutput.ts"

export interface AgentSpeech {
  /** A character may be cut between two pieces; a byte sequence that is none becomes U+FFFD. */
  readonly hear: (bytes: Uint8Array) => ReadonlyArray<AgentEvent>
  readonly end: () => Result.Result<AgentAnswer, AgentFailed>
}

export const make = (initial: AgentReader): AgentSpeech => {
  const decoder = new TextDecoder("utf-8")
  let reader = initial
  return {
    hear: (bytes) => {
      const text = decoder.decode(bytes, { stream: true })
      if (text === "") return []
      const [events, next] = reader.feed(text)
      reader = next
      return events
    },
    end: () => {
      const rest = decoder.decode()
      return (rest === "" ? reader : reader.feed(rest)[1]).end()
    }
  }
}
