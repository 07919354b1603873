/** Tests which parts of a record the view of a run contains. */
import { RunRecord } from "@cogni/sandbox-core/RunRecord"
import * as RunView from "../src/internal/RunView.ts"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const hush = "hush-hush"

const record = (over: object = {}): RunRecord =>
  Schema.decodeUnknownSync(RunRecord)({
    runId: "run-000000000001",
    spec: {
      runId: "run-000000000001",
      image: "cogni-sandbox/runtime:latest",
      argv: ["agent", hush],
      env: { WORD: hush },
      inputs: [{ name: "messages.json", content: hush }],
      workspace: { type: "directory", path: `/srv/${hush}` },
      limits: { memoryBytesMax: 64 * 1024 * 1024 },
      llm: {
        model: "gpt",
        identity: {
          billingAccountId: "acct",
          attempt: 0,
          graphId: "sandbox:agent",
          agentId: "agent",
          userId: "ana",
          sessionId: "thread-1",
          existingTraceId: "0af7651916cd43dd8448eb211c80319c"
        },
        budget: { callsMax: 3 }
      }
    },
    owner: `host-${hush}/1/0`,
    startedAt: "2026-01-01T00:00:00.000Z",
    endedAt: "2026-01-01T00:00:09.000Z",
    outcome: {
      status: "failed",
      reason: "TimedOut",
      code: "timeout",
      message: `it took long, at /srv/${hush}`,
      output: {
        stdout: { text: hush, bytes: 9, truncated: false },
        stderr: { text: hush, bytes: 3, truncated: true }
      },
      peak: { memoryBytes: 1024 }
    },
    llm: {
      proxy: "gateway",
      upstream: `https://${hush}.example`,
      calls: [],
      callsTotal: 2,
      subagentsExhausted: { budget: "calls", limit: 1, used: 1 },
      unreadableRows: 0,
      injectedHeaders: [],
      auditPath: `/srv/${hush}/audit`
    },
    timings: [{ phase: "agent", durationMs: 9000 }],
    annotations: {
      graph: {
        graphId: "sandbox:agent",
        grantId: "grant-1",
        requestId: "req-1",
        ingressRequestId: "req-1",
        attempt: 0,
        executorType: "sandbox",
        ok: false,
        error: "timeout",
        reason: "TimedOut",
        events: { count: 9, sha256: "0".repeat(64) }
      },
      relay: {
        status: "kept",
        origin: "https://git.example/a/b",
        branch: "sandbox/run-000000000001",
        message: `it is kept at /srv/${hush}`,
        keptAt: `/srv/${hush}`
      }
    },
    ...over
  })

describe("RunView", () => {
  it("contains the outcome of a run, but no prompt, output or host path", () => {
    const view = RunView.fromRecord(record())
    const { limits, ...rest } = JSON.parse(JSON.stringify(view))
    assert.strictEqual(limits.memoryBytesMax, 64 * 1024 * 1024)
    assert.deepStrictEqual(rest, {
      runId: "run-000000000001",
      status: "failed",
      graphId: "sandbox:agent",
      agentId: "agent",
      model: "gpt",
      repository: "https://git.example/a/b",
      startedAt: "2026-01-01T00:00:00.000Z",
      endedAt: "2026-01-01T00:00:09.000Z",
      attempt: 0,
      grantId: "grant-1",
      requestId: "req-1",
      sessionId: "thread-1",
      userId: "ana",
      traceId: "0af7651916cd43dd8448eb211c80319c",
      peak: { memoryBytes: 1024 },
      budget: { callsMax: 3, onExhausted: "refuse" },
      events: { count: 9, sha256: "0".repeat(64) },
      error: { code: "timeout", reason: "TimedOut" },
      timings: [{ phase: "agent", durationMs: 9000 }],
      output: { stdoutBytes: 9, stderrBytes: 3, stdoutTruncated: false, stderrTruncated: true },
      llm: {
        proxy: "gateway",
        callsTotal: 2,
        subagentsExhausted: { budget: "calls", limit: 1, used: 1 }
      },
      relay: { status: "kept", origin: "https://git.example/a/b", branch: "sandbox/run-000000000001" }
    })
    assert.notInclude(JSON.stringify(view), hush)
  })

  it("omits invalid annotations", () => {
    const view = RunView.fromRecord(record({ annotations: { graph: 1, relay: { status: hush } } }))
    assert.deepStrictEqual(view.error?.reason, "TimedOut")
    assert.isUndefined(view.relay)
    assert.notInclude(JSON.stringify(view), hush)
  })
})
