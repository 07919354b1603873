/**
 * Exposes a registry to clients of OpenAI's APIs and compatible ones: tool definitions, and answers to a model's calls.
 *
 * Every failure of a call is a text that begins with a code and that the model can act upon; no call fails the
 * conversation. `strict` is off because it does not support optional fields, which the schemas have. The Responses API
 * enables it by default.
 */
import { Effect } from "effect"
import type * as Tool from "./Tool.ts"
import type { ToolRegistry } from "./ToolRegistry.ts"
import * as ToolSet from "./ToolSet.ts"

/** A tool call in a model's message; `arguments` is JSON text. */
interface ChatToolCall {
  readonly id: string
  readonly function: { readonly name: string; readonly arguments: string }
}

/** An item of type `function_call`. */
interface ResponsesToolCall {
  readonly call_id: string
  readonly name: string
  readonly arguments: string
}

/** Returns the `tools` of a chat completion. */
export const chatTools = (registry: ToolRegistry) =>
  responsesTools(registry).map(({ type, ...rest }) => ({ type, function: rest }))

/** Returns the `tools` of a response. */
export const responsesTools = (registry: ToolRegistry) =>
  registry.offered.map(({ description, inputSchema, name }) => ({
    type: "function" as const,
    name,
    description,
    parameters: structuredClone(inputSchema) as Record<string, unknown>,
    strict: false as const
  }))

/** Executes a call and returns the message that answers it. Never fails. */
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

/** Executes a call and returns the item that answers it. Never fails. */
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

const textOf = (registry: ToolRegistry, name: string, written: string, context: Tool.ToolContext) =>
  Effect.fromResult(ToolSet.parse(written)).pipe(
    Effect.flatMap((input) => registry.call(name, input, context)),
    ToolSet.answer,
    Effect.map(({ text }) => text)
  )
