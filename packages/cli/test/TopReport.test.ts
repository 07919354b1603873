/** Tests the table of active runs, and the summary of one. */
import { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as RunSummary from "../src/RunSummary.ts"
import * as TopReport from "../src/TopReport.ts"

const at = "2026-01-01T00:00:00.000Z"
const now = new Date("2026-01-01T00:00:42.000Z")

const record = (over: object = {}): RunRecord =>
  Schema.decodeUnknownSync(RunRecord)({
    runId: "run-000000000001",
    spec: {
      image: "i",
      argv: ["agent"],
      limits: { memoryBytesMax: 512 * 1024 * 1024 },
      llm: {
        model: "gpt-5",
        identity: { billingAccountId: "acme", agentId: "codex", userId: "ana\u001b[31m" },
        budget: { callsMax: 10 }
      }
    },
    owner: "h/1/0",
    startedAt: at,
    outcome: { status: "running" },
    timings: [],
    ...over
  })

describe("top", () => {
  it("shows what a run does, and never a control character", () => {
    const progress = (
      [
        { seq: 1, at, type: "run.started" },
        { seq: 2, at, type: "posture.verified" },
        { seq: 3, at, type: "output.written", channel: "stdout", from: 0, text: "é".repeat(512) },
        { seq: 4, at, type: "tool.started", toolCallId: "t", tool: "sh\u001b[2Jell", arguments: "{}" }
      ] as const
    ).reduce(TopReport.progressed, TopReport.nothing)
    assert.strictEqual(progress.last, 4)
    const [, row = ""] = TopReport.table([{ record: record(), progress }], now)
    assert.include(row, "codex")
    assert.include(row, "1 KiB")
    assert.include(row, "42.0 s")
    assert.notInclude(row, "\u001b")
    assert.include(row, "sh^[[2Jell")
    assert.deepStrictEqual(TopReport.table([], now), ["no active runs"])
  })
})

describe("a summary", () => {
  it("shows limits beside peaks, the reason, the budget and the delivery, as visible lines", () => {
    const lines = RunSummary.lines(
      record({
        endedAt: "2026-01-01T00:00:40.000Z",
        outcome: {
          status: "failed",
          reason: "OomKilled",
          code: "oom_killed",
          message: "the agent used too much memory",
          peak: { memoryBytes: 512 * 1024 * 1024, processes: 12 }
        },
        llm: {
          proxy: "gateway",
          upstream: "u",
          calls: [],
          callsTotal: 0,
          unreadableRows: 0,
          injectedHeaders: [],
          subagentsExhausted: { budget: "calls", limit: 3, used: 3 }
        },
        annotations: {
          relay: {
            status: "kept",
            origin: "https://git.example/a",
            branch: "sandbox/run-x",
            message: "no\nline"
          }
        }
      }),
      undefined,
      now
    )
    assert.strictEqual(lines[0], "run-000000000001  failed (OomKilled)")
    const text = lines.join("\n")
    for (const part of [
      /memory +512 MiB of 512 MiB/u,
      /processes +12 of 256/u,
      /time +40\.0 s of 10 m 0 s/u,
      /account +acme, user ana\^\[\[31m/u,
      /budget +calls \? of 10, the subagents' share of 3 calls is spent \(3 used\)/u,
      /branch +sandbox\/run-x \(kept\)/u,
      /not delivered +no line/u
    ])
      assert.match(text, part)
    assert.notInclude(text, "\u001b")
  })
})
