/**
 * Parses, executes and answers one tool call of a model.
 *
 * Calls are normalized for the history so that every API accepts them: a unique ID, a valid name, and a JSON object as
 * arguments. Invalid output of a model must not make the next request invalid.
 */
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Clock, Effect, Result } from "effect"
import type { ChatToolCall } from "../ChatMessage.ts"
import { excerpt } from "../Excerpt.ts"
import type * as Tool from "../Tool.ts"
import * as ToolSet from "../ToolSet.ts"
import { type Loop, remember, type Talk } from "./LoopTalk.ts"

/** A parsed call. */
export interface ReadCall {
  /** The call as stored in the history. */
  readonly told: ChatToolCall
  readonly input: Readonly<Record<string, unknown>>
  /** The called tool, or the problem with the call. */
  readonly meant: Result.Result<ToolSet.CheckedCall, Tool.ToolFailed>
}

/** Bytes of invalid arguments that are repeated to the model and in events. */
const malformedBytesMax = 500

const plainName = /^[A-Za-z0-9_-]{1,64}$/u
const plainId = /^[\x21-\x7e]{1,128}$/u

export const read = (call: ChatToolCall, { talk, tools }: Loop): ReadCall => {
  const id = freshId(call.id, talk)
  const name = plainName.test(call.name)
    ? call.name
    : call.name.replaceAll(/[^A-Za-z0-9_-]/gu, "_").slice(0, 64) || "unnamed"
  const meant = tools.read(call.name, call.arguments)
  if (Result.isSuccess(meant)) {
    return { told: { id, name, arguments: call.arguments.trim() || "{}" }, input: meant.success.input, meant }
  }
  // A form that every API accepts, whatever the depth or length of the arguments.
  const input = { malformed: excerpt(call.arguments, malformedBytesMax).text }
  return { told: { id, name, arguments: JSON.stringify(input) }, input, meant }
}

/** Returns the model's own ID if it is valid and unique in this conversation, or else a new one. */
const freshId = (given: string, talk: Talk): string => {
  let id = given
  for (let next = talk.callIds.size + 1; !plainId.test(id) || talk.callIds.has(id); next += 1)
    id = `call_${next}`
  talk.callIds.add(id)
  return id
}

/** Executes a call and stores its answer. Fails if the sandbox has ended. */
export const answer = Effect.fnUntraced(function* (
  { input, meant, told }: ReadCall,
  { limits, session, talk, tell, tools }: Loop
): Effect.fn.Return<void, SandboxError> {
  const { id, name } = told
  talk.toolCalls += 1
  const startedMs = yield* Clock.currentTimeMillis
  talk.open = { id, name, startedMs }
  yield* tell({ type: "tool_call_started", id, name, input })
  if (Result.isFailure(meant)) talk.invalidCalls += 1
  const { isError, text } = yield* Effect.fromResult(meant).pipe(
    Effect.flatMap(({ tool }) => tools.call(tool.name, input, { ...session, requestId: id })),
    Effect.matchEffect({
      onSuccess: (result) => Effect.succeed(ToolSet.answered(result)),
      onFailure: (error) =>
        error.cause instanceof SandboxError
          ? Effect.fail(error.cause)
          : Effect.succeed(ToolSet.refused(error))
    })
  )
  const content = excerpt(text, limits.toolResultBytesMax).text
  remember(talk, { role: "tool", toolCallId: id, toolName: name, content })
  const durationMs = (yield* Clock.currentTimeMillis) - startedMs
  talk.open = undefined
  yield* tell({ type: "tool_call_ended", id, name, content, isError, durationMs })
})

/** Reports the end of a call that the end of the loop interrupted. */
export const endOpen = Effect.fnUntraced(function* ({ talk, tell }: Loop) {
  if (talk.open === undefined) return
  const { id, name, startedMs } = talk.open
  talk.open = undefined
  const durationMs = (yield* Clock.currentTimeMillis) - startedMs
  yield* tell({ type: "tool_call_ended", id, name, content: cutShort, isError: true, durationMs })
})

const cutShort = "the loop ended before the call finished"
