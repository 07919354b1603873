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
