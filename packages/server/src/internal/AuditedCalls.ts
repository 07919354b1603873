/** The calls in the audit of a run: of its models, as far as they have gone upstream, and of host tools. */
import type { AuditLine } from "@cogni/sandbox-proxy/AuditEntry"
import { type CallView, nameCharsMax, type ToolCall, toolCallsMax } from "./CallView.ts"

/** Maximum number of calls that are listed of a run under way. */
const liveCallsMax = 1000

const cut = (text: string) => text.slice(0, nameCharsMax)

export interface AuditedCalls {
  readonly add: (line: AuditLine) => void
  /** The first calls of models, and how many there are. */
  readonly models: () => { readonly calls: ReadonlyArray<CallView>; readonly total: number }
  /** The first calls of host tools, and how many there are. */
  readonly tools: () => { readonly calls: ReadonlyArray<ToolCall>; readonly total: number }
}

const toolOf = (line: Extract<AuditLine, { readonly type: "tool.called" }>): ToolCall => {
  const { argumentsBytes, at, durationMs, effect, outcome, resultBytes, tool, via } = line
  return {
    source: "host",
    at,
    tool: cut(tool),
    effect,
    via,
    outcome: cut(outcome),
    argumentsBytes,
    resultBytes,
    durationMs
  }
}

export const make = (): AuditedCalls => {
  const models = new Map<string, CallView>()
  const tools: Array<ToolCall> = []
  let modelsTotal = 0
  let toolsTotal = 0
  const begin = (line: Extract<AuditLine, { readonly type: "call.started" }>) => {
    modelsTotal += 1
    if (models.size < liveCallsMax)
      models.set(line.callId, {
        at: line.at,
        requestId: line.requestId,
        callId: line.callId,
        method: cut(line.method),
        path: cut(line.path),
        model: line.model,
        requestBytes: line.requestBytes
      })
  }
  const end = (line: Extract<AuditLine, { readonly type: "call.ended" }>) => {
    const begun = models.get(line.callId)
    const { durationMs, outcome, responseBytes, status, usage } = line
    if (begun !== undefined)
      models.set(line.callId, { ...begun, durationMs, outcome, responseBytes, status, usage })
  }
  return {
    add: (line) => {
      if (line.type === "call.started") begin(line)
      if (line.type === "call.ended") end(line)
      if (line.type !== "tool.called") return
      toolsTotal += 1
      if (tools.length < toolCallsMax) tools.push(toolOf(line))
    },
    models: () => ({ calls: [...models.values()], total: modelsTotal }),
    tools: () => ({ calls: tools, total: toolsTotal })
  }
}
