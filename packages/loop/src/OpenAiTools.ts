/**
 * A registry for clients of OpenAI's APIs, and of all that speak like them: tools as they are offered, and a model's
 * calls as they are answered.
 *
 * Whatever goes wrong in a call is a text that the model can act upon, beginning with a code: no call fails the
 * conversation. Schemas have optional fields, which `strict` knows nothing of, so it is off: the Responses API has it
 * on unless told.
 */
import { Effect } from "effect"
import * as Tool from "./Tool.ts"
import type { ToolRegistry } from "./ToolRegistry.ts"

/** What a message of a model asks for; `arguments` are JSON, as a text. */
export interface ChatToolCall {
  readonly id: string
  readonly function: { readonly name: string; readonly arguments: string }
}

/** An item of type `function_call`. */
export interface ResponsesToolCall {
  readonly call_id: string
  readonly name: string
  readonly arguments: string
}

/** `tools` of a chat completion. */
export const chatTools = (registry: ToolRegistry) =>
  responsesTools(registry).map(({ type, ...rest }) => ({ type, function: rest }))

/** `tools` of a response. */
export const responsesTools = (registry: ToolRegistry) =>
  registry.offered.map(({ description, inputSchema, name }) => ({
    type: "function" as const,
    name,
    description,
    parameters: structuredClone(inputSchema) as Record<string, unknown>,
    strict: false as const
  }))

/** The message that answers a call; never fails. */
export const execute = (
  registry: ToolRegistry,
  { function: { arguments: given, name }, id }: ChatToolCall,
  session: Tool.ToolSession
) =>
  Effect.map(textOf(registry, name, given, { ...session, requestId: id }), (content) => ({
    role: "tool" as const,
    tool_call_id: id,
    content
  }))

/** The item that answers a call; never fails. */
export const executeResponses = (
  registry: ToolRegistry,
  { arguments: given, call_id, name }: ResponsesToolCall,
  session: Tool.ToolSession
) =>
  Effect.map(textOf(registry, name, given, { ...session, requestId: call_id }), (output) => ({
    type: "function_call_output" as const,
    call_id,
    output
  }))

/** What a model hears; of a tool that takes no arguments, some models send nothing at all. */
const textOf = (registry: ToolRegistry, name: string, given: string, context: Tool.ToolContext) =>
  Effect.try({
    try: (): unknown => JSON.parse(given.trim() === "" ? "{}" : given),
    catch: (error) =>
      new Tool.ToolFailed({
        code: "invalid_json",
        detail: `the arguments are no JSON (${String(error).slice(0, 200)}). Send one object, as the tool's parameters say`
      })
  }).pipe(
    Effect.flatMap((input) => registry.call(name, input, context)),
    Tool.answer,
    Effect.map(({ text }) => text)
  )
