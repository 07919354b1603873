/**
 * One call of a model's, carried out and answered.
 */
import { Clock, Effect, Result } from "effect"
import { excerpt } from "../Excerpt.ts"
import type { LoopLimits, Tell, ToolAnswer } from "../HostLoop.ts"
import type { SandboxError } from "../SandboxError.ts"
import * as Telemetry from "../Telemetry.ts"
import { type ReadCall, remember, type Talk } from "./HostLoopStep.ts"

/** Fails when the sandbox can be used no more. */
export const answer = Effect.fnUntraced(function* (
  { input, prepared, told }: ReadCall,
  limits: LoopLimits,
  talk: Talk,
  tell: Tell
): Effect.fn.Return<void, SandboxError> {
  const { id, name } = told
  talk.toolCalls += 1
  const startedMs = yield* Clock.currentTimeMillis
  talk.open = { id, name, startedMs }
  yield* tell({ type: "tool_call_started", id, name, input })
  if (Result.isFailure(prepared)) talk.invalidCalls += 1
  const { content: whole, isError } = Result.isFailure(prepared)
    ? ({ content: prepared.failure, isError: true } satisfies ToolAnswer)
    : yield* Effect.withSpan(prepared.success, "HostLoop.tool", {
        attributes: { [Telemetry.attribute.toolName]: name }
      })
  const content = excerpt(whole, limits.toolResultBytesMax).text
  remember(talk, { role: "tool", toolCallId: id, toolName: name, content })
  const durationMs = (yield* Clock.currentTimeMillis) - startedMs
  talk.open = undefined
  yield* tell({ type: "tool_call_ended", id, name, content, isError, durationMs })
})

/** A call that the end of the loop has cut short is told to have ended. */
export const endOpen = Effect.fnUntraced(function* (talk: Talk, tell: Tell) {
  if (talk.open === undefined) return
  const { id, name, startedMs } = talk.open
  talk.open = undefined
  const durationMs = (yield* Clock.currentTimeMillis) - startedMs
  yield* tell({ type: "tool_call_ended", id, name, content: cutShort, isError: true, durationMs })
})

const cutShort = "the loop ended before the call did"
