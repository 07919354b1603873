/** An audit with model calls, as a gateway writes it. */
import * as RunId from "@cogni/sandbox-core/RunId"
import type { LlmUsage } from "@cogni/sandbox-core/RunFigures"
import type { AuditEntry } from "../src/AuditEntry.ts"
import * as AuditLog from "../src/AuditLog.ts"

export const runId = RunId.RunId.make("run-4f7k2m9q0x1z")

export const opened: AuditEntry = {
  type: "run.opened",
  runId,
  proxy: "gateway",
  upstream: "http://litellm:4000",
  carrier: "directory",
  models: ["m"],
  identity: { billingAccountId: "acct", attempt: 0 },
  tools: [],
  canaries: "off"
}

type Started = Extract<AuditEntry, { readonly type: "call.started" }>

export const started = (callId: string, more: Partial<Started> = {}): AuditEntry => ({
  type: "call.started",
  requestId: `request-${callId}`,
  callId,
  method: "POST",
  path: "/v1/chat/completions",
  api: "chat_completions",
  model: "m",
  stream: false,
  requestBytes: 30,
  requestDigest: "0".repeat(64),
  sentBytes: 30,
  sentDigest: "0".repeat(64),
  dropped: [],
  droppedTotal: 0,
  inputTokensMax: 600,
  outputTokensMax: 50,
  ...more
})

type Ended = Extract<AuditEntry, { readonly type: "call.ended" }>

export const ended = (callId: string, usage?: LlmUsage, more: Partial<Ended> = {}): AuditEntry => ({
  type: "call.ended",
  requestId: `request-${callId}`,
  callId,
  status: 200,
  outcome: "completed",
  responseBytes: 10,
  responseDigest: "0".repeat(64),
  durationMs: 1,
  ...(usage === undefined ? {} : { usage }),
  ...more
})

/** Lines of an audit with these entries, one second apart. */
export const linesOf = (entries: ReadonlyArray<AuditEntry>): ReadonlyArray<string> => {
  let head = AuditLog.genesis(runId)
  return entries.map((entry, index) => {
    const next = AuditLog.append(head, new Date(index * 1000).toISOString(), entry)
    head = next.head
    return next.line
  })
}
