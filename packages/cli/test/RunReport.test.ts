/** Reports of runs: which results count as an answer. */
import { assert, describe, it } from "@effect/vitest"
import * as RunReport from "../src/RunReport.ts"
import * as AgentOutput from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import { envelope, result, runId } from "./RunResults.ts"

/** A run of the minimal agent with this result. */
const ended = (over: Parameters<typeof result>[0]) => {
  const ran = result(over)
  const read = AgentOutput.read(minimal.reader, ran.output.stdout.text)
  return { result: ran, judged: AgentRun.judge(read, ran) }
}

const judge = (over: Parameters<typeof result>[0]) => RunReport.verdictOf(ended(over))

describe("RunReport", () => {
  it("an envelope and exit code 0 are an answer", () => {
    const verdict = judge({ stdout: envelope("Lima") })
    assert.deepStrictEqual(verdict, { exitCode: 0, answer: { text: "Lima" }, problem: undefined })
  })

  it("an envelope with a nonzero exit code is not an answer", () => {
    const verdict = judge({ exitCode: 137, stdout: envelope("Lima"), stderr: "one\nKilled\n" })
    assert.isUndefined(verdict.answer)
    assert.strictEqual(verdict.exitCode, 137)
    assert.include(verdict.problem?.message ?? "", "after saying: Killed")
  })

  it("an error envelope is an error, with the agent's exit code, or with 76 if that is 0", () => {
    const stdout = envelope("half", { code: "http_500", message: "The model answered 500" })
    assert.strictEqual(judge({ exitCode: 1, stdout }).exitCode, 1)
    const verdict = judge({ stdout })
    assert.strictEqual(verdict.exitCode, 76)
    assert.isUndefined(verdict.answer)
    assert.strictEqual(verdict.problem?.message, "the agent failed: The model answered 500 (http_500)")
  })

  it("other output is not an answer, and the error names the logs", () => {
    const verdict = judge({ stdout: "hello" })
    assert.strictEqual(verdict.exitCode, 76)
    assert.include(verdict.problem?.message ?? "", `cogni-sandbox logs ${runId}`)
  })

  it("an agent's output cannot break the line that quotes it", () => {
    const verdict = judge({ exitCode: 2, stderr: "fine\n\u001b[2Jcogni\rx" })
    assert.notMatch(verdict.problem?.message ?? "", /[\n\r\u001b]/u)
  })

  it("names the calls and the cost of a run that failed, if it called a model", () => {
    const states = { pending: 1978, matched: 0, drifted: 0, missing: 0, estimated: 0 }
    const cost = {
      currency: "USD",
      calls: 1978,
      callsWithoutCost: 0,
      costUsd: 0.5,
      states,
      isSettled: true
    } as const
    assert.strictEqual(RunReport.used(runId, cost), `${runId}: 1978 model calls before it failed, cost $0.5`)
    assert.isUndefined(RunReport.used(runId, { ...cost, calls: 0 }))
    assert.isUndefined(RunReport.used(runId, undefined))
  })

  it("shows the end of what an agent has said before a failure", () => {
    assert.strictEqual(RunReport.spoken(" \n"), "")
    assert.strictEqual(RunReport.spoken("half\n"), "· the agent's text so far:\n  half\n")
    const long = RunReport.spoken(`${"a".repeat(5000)}b`)
    assert.strictEqual(long.length, "· the agent's text so far:\n  …\n".length + 4000)
    assert.isTrue(long.endsWith("ab\n"))
    const forged = RunReport.spoken(
      "a\ncogni-sandbox: done\r\nb\rcogni-sandbox: done\u2028cogni-sandbox: done"
    )
    assert.notMatch(forged, /^cogni-sandbox/mu)
  })

  it("the summary counts the calls that reached the model, and the refused ones apart", () => {
    const ran = result()
    const [sent] = ran.llm!.calls
    const { callId: _, ...unsent } = sent!
    const refused = { ...unsent, status: 429, outcome: "refused" } as const
    const aborted = { ...refused, outcome: "client_aborted" } as const
    const summary = (llm: Partial<NonNullable<RunResult["llm"]>>) =>
      RunReport.summary({ ...ran, llm: { ...ran.llm!, ...llm } }).split("346 ms")[1]
    const usage = {
      calls: 2,
      inputTokens: 1,
      outputTokens: 1,
      cacheReadTokens: 0,
      cacheWriteTokens: 0,
      callsWithoutUsage: 0,
      callsWithoutCost: 2
    }
    const completed = { ...sent!, outcome: "completed" } as const
    assert.strictEqual(summary({}), ", 1 model call")
    assert.strictEqual(
      summary({ calls: [completed, completed, refused], callsTotal: 3, usage }),
      ", 2 model calls, 1 refused"
    )
    assert.strictEqual(
      summary({ calls: [completed, completed, aborted], callsTotal: 3, usage }),
      ", 2 model calls"
    )
    assert.strictEqual(
      summary({ calls: [refused], callsTotal: 1, usage: { ...usage, calls: 0 } }),
      ", 0 model calls, 1 refused"
    )
    // Beyond the listed calls, the usage says how many reached the model.
    assert.strictEqual(summary({ calls: [completed], callsTotal: 5, usage }), ", 2 model calls, 3 refused")
  })

  it("as JSON, an answer and an error exclude each other", () => {
    const good = ended({ stdout: envelope("Lima") })
    assert.containSubset(
      RunReport.agentJson(minimal, good.result, RunReport.verdictOf(good), { demo: true }),
      {
        ok: true,
        demo: true,
        runId,
        agent: "agent",
        exitCode: 0,
        answer: "Lima",
        durationMs: 346,
        timings: [{ phase: "create", durationMs: 12.3 }]
      }
    )
    const bad = ended({ exitCode: 1 })
    const json = RunReport.agentJson(minimal, bad.result, RunReport.verdictOf(bad), { demo: false })
    assert.containSubset(json, { ok: false, exitCode: 1, error: { code: "agent", reason: "exit" } })
    assert.notProperty(json, "answer")
    assert.notProperty(json, "textSoFar")
    const half = ended({ stdout: envelope("half", { code: "http_500", message: "The model answered 500" }) })
    assert.containSubset(
      RunReport.agentJson(minimal, half.result, RunReport.verdictOf(half), { demo: false }),
      {
        ok: false,
        textSoFar: "half"
      }
    )
    assert.notProperty(json, "demo")
  })

  it("as JSON, a command has its whole output, whatever its exit code", () => {
    assert.containSubset(RunReport.commandJson(result({ exitCode: 3, stdout: "a\n" }), { demo: false }), {
      ok: false,
      exitCode: 3,
      output: { stdout: { text: "a\n", bytes: 2, truncated: false } }
    })
  })
})
