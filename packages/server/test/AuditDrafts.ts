/** Entries of audits, for tests. */
import type * as AuditLog from "@cogni/sandbox-proxy/AuditLog"

export const hash = "0".repeat(64)

/** A call of a host tool. */
export const toolCalled = (requestId: string, tool: string): Parameters<typeof AuditLog.append>[2] => ({
  type: "tool.called",
  requestId,
  tool,
  effect: "read_only",
  via: "mcp",
  argumentsBytes: 2,
  argumentsDigest: hash,
  outcome: "ok",
  resultBytes: 3,
  resultDigest: hash,
  durationMs: 4
})

/** A model call whose request is kept, and is this text. */
export const callStarted = (callId: string, body: string): Parameters<typeof AuditLog.append>[2] => ({
  type: "call.started",
  requestId: callId,
  callId,
  method: "POST",
  path: "/v1/messages",
  api: "chat",
  model: "m",
  modelRequested: undefined,
  stream: true,
  requestBytes: 9,
  requestDigest: hash,
  sentBytes: 9,
  sentDigest: hash,
  dropped: [],
  droppedTotal: 0,
  inputTokensMax: undefined,
  cachesForHour: undefined,
  outputTokensMax: undefined,
  costUsdMax: undefined,
  body
})
