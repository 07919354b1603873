/** What was told of a run, for its record: how many events, and SHA-256 over them as JSON lines. */
import { createHash } from "node:crypto"
import type { AiEvent } from "../events/AiEvent.ts"

export interface EventsDigest {
  readonly add: (events: ReadonlyArray<AiEvent>) => void
  readonly value: () => { readonly count: number; readonly sha256: string }
}

export const make = (): EventsDigest => {
  const hash = createHash("sha256")
  let count = 0
  return {
    add: (events) => {
      for (const event of events) hash.update(`${JSON.stringify(event)}\n`)
      count += events.length
    },
    value: () => ({ count, sha256: hash.copy().digest("hex") })
  }
}
