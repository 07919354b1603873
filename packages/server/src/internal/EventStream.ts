/**
 * A run's events as server-sent events: `event:` is the type, `data:` the event as JSON, `id:` counts from 1.
 *
 * Pure; one encoder has one run. There is no taking up again after a break (`Last-Event-ID`): a run is for one reader,
 * and is ended when that one goes away.
 */
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"

/** What turns the events of one run into the text of its response. */
export interface EventEncoder {
  /** Before the first event. */
  readonly begin: string
  readonly encode: (events: ReadonlyArray<AiEvent>) => string
  /** Of the response, besides its type. */
  readonly headers: Readonly<Record<string, string>>
}

/** Takes a line without ending an event, or being one. */
export const heartbeat = ": heartbeat\n\n"

/** What keeps proxies from holding back, changing or keeping a stream. */
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
