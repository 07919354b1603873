/**
 * One call of a model's: read, carried out and answered.
 *
 * What goes into the history is made fit for any API: ids of its own for every call, names that are names, arguments
 * that are a JSON object. A model that writes nonsense must not make the next question invalid.
 */
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Clock, Effect } from "effect"
import type { ChatToolCall } from "../ChatModel.ts"
import { excerpt } from "../Excerpt.ts"
import * as Tool from "../Tool.ts"
import * as Json from "./Json.ts"
import { type Loop, remember, type Talk } from "./LoopTalk.ts"

/** A call of the model's, read. */
export interface ReadCall {
  /** As it is in the history. */
  readonly told: ChatToolCall
  readonly input: Readonly<Record<string, unknown>>
  /** What it calls, or what is wrong with it. */
  readonly meant: { readonly tool: Tool.Tool } | { readonly problem: string }
}

/** What of nonsense is told again, to the model and to whoever watches. */
const malformedBytesMax = 500

const plainName = /^[A-Za-z0-9_-]{1,64}$/u
const plainId = /^[\x21-\x7e]{1,128}$/u

export const read = (call: ChatToolCall, { talk, tools }: Loop): ReadCall => {
  const id = freshId(call.id, talk)
  const tool = tools.find(({ name }) => name === call.name)
  if (tool === undefined) {
    const name = plainName.test(call.name)
      ? call.name
      : call.name.replaceAll(/[^A-Za-z0-9_-]/gu, "_").slice(0, 64) || "unnamed"
    const known = tools.map((other) => other.name).join(", ")
    return unreadable(id, name, call.arguments, `there is no tool ${name}. There are: ${known}`)
  }
  const parsed = Json.parse(call.arguments)
  if (!Json.isObject(parsed)) {
    return unreadable(id, tool.name, call.arguments, "the arguments are no JSON object. Write one")
  }
  const problem = tool.check(parsed)
  return problem === undefined
    ? { told: { id, name: tool.name, arguments: call.arguments }, input: parsed, meant: { tool } }
    : unreadable(id, tool.name, call.arguments, `the arguments are refused: ${problem}`)
}

/** What was written is told back in a form that any API takes, however deep or long it was. */
const unreadable = (id: string, name: string, written: string, problem: string): ReadCall => {
  const input = { malformed: excerpt(written, malformedBytesMax).text }
  return {
    told: { id, name, arguments: JSON.stringify(input) },
    input,
    meant: { problem: excerpt(problem, 4 * malformedBytesMax).text }
  }
}

/** A model's own id, where it is one and names nothing else of this conversation. */
const freshId = (given: string, talk: Talk): string => {
  let id = given
  for (let next = talk.callIds.size + 1; !plainId.test(id) || talk.callIds.has(id); next += 1)
    id = `call_${next}`
  talk.callIds.add(id)
  return id
}

/** Fails when the sandbox can be used no more. */
export const answer = Effect.fnUntraced(function* (
  { input, meant, told }: ReadCall,
  { limits, session, talk, tell }: Loop
): Effect.fn.Return<void, SandboxError> {
  const { id, name } = told
  talk.toolCalls += 1
  const startedMs = yield* Clock.currentTimeMillis
  talk.open = { id, name, startedMs }
  yield* tell({ type: "tool_call_started", id, name, input })
  if ("problem" in meant) talk.invalidCalls += 1
  const { isError, text } =
    "problem" in meant
      ? { text: meant.problem, isError: true }
      : yield* Tool.called(meant.tool, input, { ...session, requestId: id }).pipe(
          Effect.matchEffect({
            onSuccess: (result) => Effect.succeed(Tool.answered(result)),
            onFailure: (error) =>
              error.cause instanceof SandboxError
                ? Effect.fail(error.cause)
                : Effect.succeed(Tool.refused(error))
          })
        )
  const content = excerpt(text, limits.toolResultBytesMax).text
  remember(talk, { role: "tool", toolCallId: id, toolName: name, content })
  const durationMs = (yield* Clock.currentTimeMillis) - startedMs
  talk.open = undefined
  yield* tell({ type: "tool_call_ended", id, name, content, isError, durationMs })
})

/** A call that the end of the loop has cut short is told to have ended. */
export const endOpen = Effect.fnUntraced(function* ({ talk, tell }: Loop) {
  if (talk.open === undefined) return
  const { id, name, startedMs } = talk.open
  talk.open = undefined
  const durationMs = (yield* Clock.currentTimeMillis) - startedMs
  yield* tell({ type: "tool_call_ended", id, name, content: cutShort, isError: true, durationMs })
})

const cutShort = "the loop ended before the call did"
