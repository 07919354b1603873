/**
 * Answers with the recording of a run, as a stream from its journal.
 *
 * A reader takes a place as one who follows the run does. It gets a whole recording, or a connection that breaks: it
 * has to read on, and to be done in time, so that a revoked grant does not read on.
 */
import * as RunRecording from "@cogni/sandbox-core/RunRecording"
import { Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import type { ServerLimits } from "../ServerLimits.ts"
import { CurrentGrant } from "./Authentication.ts"
import * as FollowHandler from "./FollowHandler.ts"
import * as OpenAnswers from "./OpenAnswers.ts"
import * as OutputHandler from "./OutputHandler.ts"
import * as Problem from "./Problem.ts"
import type { Readers } from "./Readers.ts"
import type { RunHandlers } from "./RunHandlers.ts"
import * as RunView from "./RunView.ts"
import * as SseResponse from "./SseResponse.ts"

const notKept = Problem.make(
  "not_found",
  "RecordingNotKept",
  "this server has no recording of the run: it has not started, another host ran it, or its journal was deleted. " +
    "Read its stdout or stderr"
)

export const make = (
  { followSecondsMax, streamIdleSecondsMax }: ServerLimits,
  { lookUp }: Pick<RunHandlers, "lookUp">,
  readers: Readers
) =>
  Effect.fn("SandboxServer.readRecording")(function* (id: string) {
    const { here, record, runId } = yield* lookUp(id)
    const { id: grantId } = yield* CurrentGrant
    const over = here === undefined && record !== undefined && RunView.isOver(record) ? record : undefined
    const recording = yield* RunRecording.open(runId, { record: over }).pipe(
      Effect.catch(Problem.storeUnavailable)
    )
    if (recording === undefined)
      return yield* Effect.fail(here === undefined && over === undefined ? FollowHandler.elsewhere : notKept)
    yield* readers.join(grantId)
    const taken = yield* SseResponse.endWhenStalled(streamIdleSecondsMax)
    return HttpServerResponse.stream(
      recording.pipe(
        Stream.encodeText,
        Stream.flatMap((bytes) => Stream.fromIterable(OpenAnswers.piecesOf(bytes))),
        Stream.tap(() => taken),
        Stream.interruptWhen(Effect.delay(Effect.interrupt, `${followSecondsMax} seconds`))
      ),
      {
        contentType: RunRecording.mediaType,
        headers: {
          ...OutputHandler.plainHeaders,
          "content-disposition": `attachment; filename="${runId}${RunRecording.fileExtension}"`
        }
      }
    )
  })
