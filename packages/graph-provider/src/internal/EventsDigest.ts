/** Digest of a run's events, for its record: their number, and the SHA-256 of their JSON lines. */
import { createHash } from "node:crypto"
import type { AiEvent } from "../events/AiEvent.ts"

export const make = () => {
  const hash = createHash("sha256")
  let count = 0
  return {
    add: (events: ReadonlyArray<AiEvent>) => {
      for (const event of events) hash.update(`${JSON.stringify(event)}\n`)
      count += events.length
    },
    value: () => ({ count, sha256: hash.copy().digest("hex") })
  }
}
