/**
 * Streams the events of a run that a request starts.
 *
 * All refusals come before the first byte of the answer, with their own status. The run lives in the scope of its
 * request: when the reader disconnects or stops reading, the scope closes and the run ends.
 */
import { Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import * as AiSdkStream from "./AiSdkStream.ts"
import * as EventStream from "./EventStream.ts"
import type { ServerLimits } from "../ServerLimits.ts"
import { type RunStart, runHeader, type StartAsked } from "./RunStart.ts"
import * as SseResponse from "./SseResponse.ts"

interface ChatAsked extends StartAsked {
  readonly protocol: "events" | "ai-sdk" | undefined
}

export const make = (limits: ServerLimits, { read, start }: RunStart) =>
  Effect.fn("SandboxServer.chat")(function* ({ protocol, ...asked }: ChatAsked) {
    const run = yield* start(yield* read(asked))
    const encoder =
      protocol === AiSdkStream.protocol ? AiSdkStream.make(run.runId) : EventStream.make(run.runId)
    const texts = run.events.pipe(Stream.mapArray((events) => [encoder.encode(events)]))
    return HttpServerResponse.stream(yield* SseResponse.make(encoder.begin, texts, limits), {
      contentType: "text/event-stream; charset=utf-8",
      headers: { ...encoder.headers, [runHeader]: run.runId }
    })
  })
