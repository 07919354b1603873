/** Records as a list, and as JSON. */
import { assert, describe, it } from "@effect/vitest"
import * as RecordReport from "../src/RecordReport.ts"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { outputOf } from "@cogni/sandbox-core/RecordForms"
import { record, result, runId } from "./RunResults.ts"

const now = new Date("2026-01-01T00:01:05.000Z")
const ended = { endedAt: "2026-01-01T00:00:01.500Z" }
const failed = { status: "failed", reason: "TimedOut", code: "timeout", message: "…" } as const

describe("RecordReport", () => {
  it("lists one run per line, aligned, with its command truncated and made visible", () => {
    const long = record({ spec: { ...record().spec, argv: ["sh", "-c", `\u001b[31m\n${"x".repeat(60)}`] } })
    const lines = RecordReport.list(
      [record({ ...ended, outcome: { status: "exited", result: result({ exitCode: 3 }) } }), long],
      now
    )
    assert.deepStrictEqual(lines, [
      "RUN               STATUS    STARTED      TOOK     COMMAND",
      "run-000000000001  exited 3  1 m 5 s ago  1.5 s    cogni-agent",
      `run-000000000001  running   1 m 5 s ago  1 m 5 s  sh -c ^[[31m ${"x".repeat(26)}…`
    ])
  })

  it("lists the command of a run on a repository, without the programs around it", () => {
    const argv = ["/usr/local/bin/cogni-repo", "--commit", "--", "--", "npm", "test", "--", "-x"]
    const agent = [
      "/usr/local/bin/cogni-repo",
      "--",
      "/usr/local/bin/cogni-stdin",
      "/cogni/prompt.md",
      "codex"
    ]
    for (const [asked, shown] of [
      [argv, "npm test -- -x"],
      [agent, "codex"]
    ] as const) {
      const [, line] = RecordReport.list([record({ spec: { ...record().spec, argv: asked as never } })], now)
      assert.isTrue(line?.endsWith(`  ${shown}`), line)
    }
  })

  it("describes an outcome in one or two words", () => {
    assert.strictEqual(RecordReport.status(failed), "TimedOut")
    assert.strictEqual(RecordReport.status({ status: "abandoned" }), "abandoned")
  })

  it("summarizes a record for scripts", () => {
    assert.containSubset(RecordReport.summary(record({ ...ended, outcome: failed }), now), {
      runId,
      status: "failed",
      reason: "TimedOut",
      durationMs: 1500,
      argv: ["cogni-agent"]
    })
  })

  it("finds the output of runs that exited, or exceeded a limit", () => {
    assert.isUndefined(outputOf(record()))
    assert.isUndefined(outputOf(record({ outcome: failed })))
    assert.strictEqual(outputOf(record({ outcome: { ...failed, output: emptyOutput } })), emptyOutput)
    const exited = { status: "exited", result: result({ stdout: "x" }) } as const
    assert.strictEqual(outputOf(record({ outcome: exited }))?.stdout.text, "x")
  })

  it("encodes a whole record as plain JSON", () => {
    const json = RecordReport.toJson(record({ outcome: { status: "exited", result: result() } }))
    assert.deepStrictEqual(JSON.parse(JSON.stringify(json)), json)
  })
})
