/** Reports of a task, while it runs and at its end. */
import { assert, describe, it } from "@effect/vitest"
import { exitCode } from "../src/ExitCode.ts"
import * as TaskReport from "../src/TaskReport.ts"
import { failed } from "@cogni/sandbox-loop/ChatError"
import type { LoopEnd, LoopVerdict } from "@cogni/sandbox-loop/LoopEvent"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"

const endOf = (verdict: LoopVerdict, message = "the model answered"): LoopEnd => ({
  ...verdict,
  text: "Done.",
  steps: 1,
  toolCalls: 2,
  usage: { inputTokens: 3, outputTokens: 4 },
  durationMs: 1500.4,
  message
})
const finished = endOf({ outcome: "finished" })
const patch = { files: 1, bytes: 3, text: "abc" }

describe("TaskReport.lineOf", () => {
  it("formats a call as one line, with control characters made visible", () => {
    const call = (name: string, input: Readonly<Record<string, unknown>>) =>
      TaskReport.lineOf({ type: "tool_call_started", id: "1", name, input })
    assert.strictEqual(
      call("shell__exec", { command: "npm test\nrm -rf /" }),
      "shell__exec npm test rm -rf /"
    )
    assert.strictEqual(call("file__write", { path: "a.txt", content: "secret" }), "file__write a.txt")
    assert.strictEqual(call("fly", { malformed: "{" }), 'fly {"malformed":"{"}')
    assert.strictEqual(call("shell__exec", { command: "\u001B[2J\u0007" }), "shell__exec ^[[2J^G")
    assert.isAtMost(call("shell__exec", { command: "x".repeat(10_000) })?.length ?? 0, 160)
  })

  it("formats the end of a call by its exit code or its first line", () => {
    const ended = (content: string, isError = false) =>
      TaskReport.lineOf({
        type: "tool_call_ended",
        id: "1",
        name: "shell__exec",
        content,
        isError,
        durationMs: 120
      })
    assert.strictEqual(ended('{"exit_code":1,"stdout":"x"'), "exit code 1, after 0.1 s")
    assert.strictEqual(ended("there is no tool fly", true), "refused: there is no tool fly")
    assert.isAtMost(ended("y".repeat(1_000_000))?.length ?? 0, 160)
  })

  it("ignores other events", () => {
    assert.isUndefined(TaskReport.lineOf({ type: "text_delta", delta: "x" }))
    assert.isUndefined(TaskReport.lineOf({ type: "step_ended", step: 1, inputTokens: 1, outputTokens: 1 }))
  })
})

describe("TaskReport.exitOf", () => {
  it.each([
    ["finished", "success"],
    ["steps_exhausted", "budget"],
    ["tool_calls_exhausted", "budget"],
    ["output_tokens_exhausted", "budget"],
    ["context_exhausted", "budget"],
    ["invalid_calls_exhausted", "noAnswer"],
    ["timeout", "timeout"]
  ] as const)("%s is %s", (outcome, exit) => {
    assert.strictEqual(TaskReport.exitOf({ end: endOf({ outcome }), patch }), exit)
  })

  it.each([
    ["insufficient_quota", "budget"],
    ["unauthorized", "configuration"],
    ["timeout", "timeout"],
    ["refused", "noAnswer"],
    ["invalid_answer", "noAnswer"],
    ["unreachable", "fault"],
    ["rate_limit", "fault"],
    ["invalid_request", "fault"]
  ] as const)("a model that fails with %s is %s", (code, exit) => {
    assert.strictEqual(
      TaskReport.exitOf({ end: endOf({ outcome: "model_failed", error: failed(code, "because") }), patch }),
      exit
    )
  })

  it.each([{ files: 0, bytes: 0, problem: "no space\nleft" }])(
    "a task without a patch is a fault, with the reason",
    (none) => {
      const result = { end: finished, patch: none }
      assert.strictEqual(TaskReport.exitOf(result), "fault")
      assert.strictEqual(TaskReport.problemOf(result), TaskReport.changes(result, undefined))
      const report = JSON.parse(JSON.stringify(TaskReport.json(result, "run-1", false, "/p")))
      assert.containSubset(report, {
        ok: false,
        exitCode: exitCode.fault,
        outcome: "finished",
        error: { code: "fault", reason: "no_patch", message: TaskReport.problemOf(result) }
      })
    }
  )

  it("a sandbox that has ended is a fault", () => {
    const error = new SandboxError({
      reason: new ContainerFailed({ operation: "exec", detail: "is over", remedy: "Open another" })
    })
    assert.strictEqual(
      TaskReport.exitOf({ end: endOf({ outcome: "sandbox_failed", error }), patch }),
      "fault"
    )
  })
})

describe("TaskReport at the end", () => {
  it("describes the changes for every result", () => {
    const said = (given: object, file?: string) =>
      TaskReport.changes({ end: finished, patch: given as typeof patch }, file)
    assert.strictEqual(said(patch), "1 file changed")
    assert.strictEqual(said({ ...patch, files: 2 }, "/p"), "2 files changed; the patch is in /p")
    assert.strictEqual(said({ files: 0, bytes: 0, text: "" }), "nothing changed")
    assert.strictEqual(said({ files: 0, bytes: 0, problem: "it\ncould not" }), "it could not")
  })

  it("names flags in its remedies", () => {
    const end = endOf(
      { outcome: "steps_exhausted" },
      "not done after 3 steps. Raise stepsMax, or give it less to do"
    )
    assert.strictEqual(
      TaskReport.problemOf({ end, patch }),
      "not done after 3 steps. Raise --steps-max, or give it less to do"
    )
    for (const limit of ["toolCallsMax", "outputTokensMax", "contextBytesMax"]) {
      const message = `it was too much. Raise ${limit}, or give it less to do`
      assert.strictEqual(
        TaskReport.problemOf({ end: endOf({ outcome: "tool_calls_exhausted" }, message), patch }),
        "it was too much. Give it less to do",
        `no flag raises ${limit}`
      )
    }
    assert.isUndefined(TaskReport.problemOf({ end: finished, patch }))
    assert.strictEqual(TaskReport.summary(finished), "1 step, 2 tool calls, 3 tokens in, 4 out")
  })

  it("is JSON for scripts", () => {
    assert.deepStrictEqual(
      JSON.parse(JSON.stringify(TaskReport.json({ end: finished, patch }, "run-1", false, undefined))),
      {
        ok: true,
        runId: "run-1",
        exitCode: 0,
        outcome: "finished",
        answer: "Done.",
        steps: 1,
        toolCalls: 2,
        usage: { inputTokens: 3, outputTokens: 4 },
        durationMs: 1500,
        patch
      }
    )
    const error = failed("rate_limit", "slow down")
    const spent = endOf({ outcome: "model_failed", error }, error.message)
    const report = JSON.parse(JSON.stringify(TaskReport.json({ end: spent, patch }, "run-1", true, "/p")))
    assert.containSubset(report, {
      ok: false,
      demo: true,
      exitCode: exitCode.fault,
      patch: { files: 1, bytes: 3, file: "/p" },
      error: { code: "fault", reason: "rate_limit", isRetryable: true }
    })
    assert.notProperty(report.patch, "text")
  })
})
