/** The end of a graph run, as its caller sees it. */
import { type Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { assert, describe, it } from "@effect/vitest"
import * as GraphEnd from "../src/internal/GraphEnd.ts"
import { context, request } from "./GraphWorld.ts"
import { call, traffic } from "./Traffic.ts"

const partial = { exitCode: 137, output: emptyOutput, peak: {}, durationMs: 1 }
const usage = {
  calls: 1,
  inputTokens: 11,
  outputTokens: 5,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  callsWithoutUsage: 0,
  callsWithoutCost: 0
}
const seen = traffic([call()], { usage })

const failed = (reason: Reason, textSoFar: string) =>
  GraphEnd.failed(new SandboxError({ runId: context.runId, reason, llm: seen }), textSoFar)

const evidence = {
  at: "2026-01-01T00:00:00.000Z",
  canary: "database_password",
  encoding: "plain",
  channel: "stdout"
} as const

describe("GraphEnd", () => {
  it.each<[string, Reason]>([
    ["timeout", new SandboxReason.TimedOut({ runtimeSecondsMax: 1, partial })],
    ["internal", new SandboxReason.OomKilled({ memoryBytesMax: 1, partial })],
    [
      "insufficient_credits",
      new SandboxReason.BudgetExceeded({ budget: "calls", limit: 1, used: 1, partial })
    ],
    ["policy_denied", new SandboxReason.ExfiltrationSuspected({ evidence, partial })],
    ["invalid_request", new SandboxReason.RunIdInUse({ runId: context.runId })],
    ["internal", new SandboxReason.ProxyFailed({ detail: "is gone", remedy: "Look" })]
  ])("reports %s with its specific reason, the text so far and the usage", (error, reason) => {
    const outcome = failed(reason, "half of it")
    const { ending, final } = GraphEnd.make(request(), context, outcome, outcome.traffic)
    assert.containSubset(final, {
      ok: false,
      error,
      reason: reason._tag,
      content: "half of it",
      usage: { promptTokens: 11, completionTokens: 5 }
    })
    assert.notProperty(final, "finishReason")
    assert.deepStrictEqual(
      ending.facts.map(({ usageUnitId }) => usageUnitId),
      ["call-1"]
    )
  })

  it("keeps the text of a stopped run, and omits empty content", () => {
    const { final } = GraphEnd.make(request(), context, GraphEnd.stopped("cancelled", "half"), undefined)
    assert.containSubset(final, { ok: false, error: "aborted", content: "half" })
    const silent = GraphEnd.make(request(), context, GraphEnd.stopped("cancelled", ""), undefined)
    assert.notProperty(silent.final, "content")
  })

  it("reports zero usage for a run whose ID was taken", () => {
    const reason = new SandboxReason.RunIdInUse({ runId: context.runId })
    const error = new SandboxError({ runId: context.runId, reason })
    const { ending } = GraphEnd.make(request(), context, GraphEnd.failed(error, ""), undefined)
    assert.deepStrictEqual([ending.facts[0].inputTokens, ending.facts[0].outputTokens], [0, 0])
  })
})
