/**
 * The AI SDK with a scripted model that calls one tool and then answers `done`. Reports the tools and the answer.
 */
import type { AiSdkTool } from "@cogni/sandbox-loop/AiSdkTools"
import { generateText, isStepCount, type ToolSet } from "ai"
import { MockLanguageModelV4 } from "ai/test"

type Generated = Exclude<
  NonNullable<ConstructorParameters<typeof MockLanguageModelV4>[0]>["doGenerate"],
  ((...args: never) => unknown) | ReadonlyArray<unknown> | undefined
>

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 }
}

const done: Generated = {
  content: [{ type: "text", text: "done" }],
  finishReason: { unified: "stop", raw: "stop" },
  usage,
  warnings: []
}

const calls = (toolName: string, input: string): Generated => ({
  content: [{ type: "tool-call", toolCallId: "call-1", toolName, input }],
  finishReason: { unified: "tool-calls", raw: "tool_calls" },
  usage,
  warnings: []
})

export class AiModel {
  readonly #tools: ToolSet

  // This assignment checks the structural type against the SDK's own.
  constructor(tools: Record<string, AiSdkTool>) {
    this.#tools = tools
  }

  async offered() {
    const model = new MockLanguageModelV4({ doGenerate: [done] })
    await generateText({ model, tools: this.#tools, prompt: "x" })
    return (model.doGenerateCalls[0]?.tools ?? []).flatMap((tool) =>
      tool.type === "function"
        ? [{ name: tool.name, description: tool.description ?? "", schema: tool.inputSchema as unknown }]
        : []
    )
  }

  async call(toolName: string, input: string, abortSignal?: AbortSignal) {
    const model = new MockLanguageModelV4({ doGenerate: [calls(toolName, input), done] })
    await generateText({
      model,
      tools: this.#tools,
      prompt: "x",
      stopWhen: isStepCount(2),
      ...(abortSignal === undefined ? {} : { abortSignal })
    })
    const answer = model.doGenerateCalls[1]?.prompt
      .flatMap((message) => (message.role === "tool" ? message.content : []))
      .find((part) => part.type === "tool-result")?.output
    if (answer === undefined) throw new Error("the model received no answer")
    switch (answer.type) {
      case "json":
        return { ok: true, text: JSON.stringify(answer.value) }
      case "error-text":
        return { ok: false, text: answer.value }
      default:
        throw new Error(`the model received ${answer.type}`)
    }
  }
}
