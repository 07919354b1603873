/**
 * A registry as the `tools` of the AI SDK's `generateText` and `streamText`.
 *
 * The SDK is not imported: a tool's schema is a Standard Schema with a JSON Schema, and the SDK accepts any object of
 * that form. The schema accepts all arguments, because the tool decodes them itself and its error is what the model
 * reads. A failed call rejects, and becomes the SDK's `tool-error`.
 */
import { Effect, FiberSet, type Scope } from "effect"
import type * as Tool from "./Tool.ts"
import type { ToolRegistry } from "./ToolRegistry.ts"
import * as ToolSet from "./ToolSet.ts"

/** The required parts of the Standard Schema and Standard JSON Schema specifications. */
export interface AiSdkSchema {
  readonly "~standard": {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => { readonly value: unknown }
    readonly jsonSchema: {
      readonly input: (options: { readonly target: string }) => Record<string, unknown>
      readonly output: (options: { readonly target: string }) => Record<string, unknown>
    }
  }
}

export interface AiSdkTool {
  readonly description: string
  readonly inputSchema: AiSdkSchema
  readonly execute: (
    input: unknown,
    options: { readonly toolCallId: string; readonly abortSignal?: AbortSignal | undefined }
  ) => Promise<unknown>
}

/** The error of a failed call, which the model reads: a code, and what to do. */
export class AiSdkToolError extends Error {
  override readonly name = "AiSdkToolError"
  // The SDK passes `toString()` to the model, which would put the name before the message.
  override toString(): string {
    return this.message
  }
}

/** Returns the allowed tools by wire name. Calls end with the scope, and with the SDK's own abort signal. */
export const make = Effect.fnUntraced(function* (
  registry: ToolRegistry,
  session: Tool.ToolSession
): Effect.fn.Return<Record<string, AiSdkTool>, never, Scope.Scope> {
  const run = yield* FiberSet.makeRuntimePromise<never, ToolSet.ToolAnswer, never>()
  return Object.fromEntries(
    registry.offered.map(({ description, inputSchema, name }) => [
      name,
      {
        description,
        inputSchema: schemaOf(inputSchema),
        execute: async (input, { abortSignal, toolCallId }) => {
          const answer = await run(
            ToolSet.answer(registry.call(name, input, { ...session, requestId: toolCallId })),
            abortSignal === undefined ? {} : { signal: abortSignal }
          )
          if (answer.isError) throw new AiSdkToolError(answer.text)
          return answer.result
        }
      } satisfies AiSdkTool
    ])
  )
})

/** Copies the schema each time, because the caller may modify it. */
const schemaOf = (inputSchema: Readonly<Record<string, unknown>>): AiSdkSchema => {
  const tell = () => structuredClone(inputSchema) as Record<string, unknown>
  return {
    "~standard": {
      version: 1,
      vendor: "cogni",
      validate: (value) => ({ value }),
      jsonSchema: { input: tell, output: tell }
    }
  }
}
