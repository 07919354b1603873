/**
 * Encodes a run's events as server-sent events: `event:` is the type, `data:` the event as JSON, `id:` counts from 1.
 *
 * Pure. Each encoder is for one run. A stream cannot be resumed (`Last-Event-ID`), because a run has one reader, and
 * ends when that reader disconnects.
 */
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"

/** Encodes the events of one run as the text of its response. */
export interface EventEncoder {
  /** Text before the first event. */
  readonly begin: string
  readonly encode: (events: ReadonlyArray<AiEvent>) => string
  /** Headers of the response, except `content-type`. */
  readonly headers: Readonly<Record<string, string>>
}

/** A comment, which clients ignore. */
export const heartbeat = ": heartbeat\n\n"

/** Headers that keep proxies from buffering, transforming or caching a stream. */
export const headers: Readonly<Record<string, string>> = {
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no"
}

export const make = (runId: string): EventEncoder => {
  let id = 0
  return {
    begin: `: ${runId}\n\n`,
    encode: (events) => {
      let text = ""
      for (const event of events) {
        id += 1
        text += `id: ${id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
      }
      return text
    },
    headers
  }
}
