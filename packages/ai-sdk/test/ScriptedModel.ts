/** A model of the AI SDK that asks for these tool calls, one in each step, and then answers with a text. */
import { MockLanguageModelV4 } from "ai/test"

type Generated = Exclude<
  NonNullable<ConstructorParameters<typeof MockLanguageModelV4>[0]>["doGenerate"],
  ((...args: never) => unknown) | ReadonlyArray<unknown> | undefined
>

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 }
}

export interface Call {
  readonly tool: string
  readonly input: unknown
}

export const scripted = (calls: ReadonlyArray<Call>, text = "done"): MockLanguageModelV4 => {
  const steps = calls.map(({ input, tool }, index): Generated => ({
    content: [
      { type: "tool-call", toolCallId: `call-${index}`, toolName: tool, input: JSON.stringify(input) }
    ],
    finishReason: { unified: "tool-calls", raw: "tool_calls" },
    usage,
    warnings: []
  }))
  const answer: Generated = {
    content: [{ type: "text", text }],
    finishReason: { unified: "stop", raw: "stop" },
    usage,
    warnings: []
  }
  return new MockLanguageModelV4({ doGenerate: [...steps, answer] })
}

/** The results of tools that the model has read, in order. */
export const resultsOf = (model: MockLanguageModelV4): ReadonlyArray<unknown> =>
  (model.doGenerateCalls.at(-1)?.prompt ?? [])
    .flatMap((message) => (message.role === "tool" ? message.content : []))
    .flatMap((part) => (part.type === "tool-result" ? [part.output] : []))
