/** The traffic of a run, for tests. */
import type { LlmCall, LlmTraffic } from "@cogni/sandbox-core/RunFigures"

export const call = (over: Partial<LlmCall> = {}): LlmCall => ({
  at: "2026-01-01T00:00:00.000Z",
  requestId: "req-1",
  method: "POST",
  path: "/v1/chat/completions",
  status: 200,
  callId: "call-1",
  requestBytes: 10,
  responseBytes: 20,
  durationMs: 5,
  completed: true,
  outcome: "completed",
  model: "gpt",
  usage: { inputTokens: 11, outputTokens: 5, costUsd: 0.25 },
  ...over
})

export const traffic = (calls: ReadonlyArray<LlmCall>, over: Partial<LlmTraffic> = {}): LlmTraffic => ({
  proxy: "gateway",
  upstream: "http://litellm:4000",
  calls,
  callsTotal: calls.length,
  unreadableRows: 0,
  injectedHeaders: [],
  ...over
})
