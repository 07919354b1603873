/** The output of an agent during one run: bytes in, events out, and an answer at the end. */
import type { AgentEvent, AgentReader } from "../agents/AgentOutput.ts"

export const make = (initial: AgentReader) => {
  const decoder = new TextDecoder("utf-8")
  let reader = initial
  return {
    /** Characters may be split between pieces. Invalid bytes become U+FFFD. */
    hear: (bytes: Uint8Array): ReadonlyArray<AgentEvent> => {
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
