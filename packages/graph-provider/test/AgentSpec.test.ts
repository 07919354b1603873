/** What the end of a run comes to: an answer only with exit code 0, and else one line that says why. */
import { AgentFailed, unreadable } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import * as AgentSpec from "@cogni/sandbox-graph-provider/agents/AgentSpec"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"

const ended = (exitCode: number, stderr = "") => ({
  exitCode,
  output: { ...emptyOutput, stderr: { text: stderr, bytes: stderr.length, truncated: false } }
})

const problemOf = (judged: ReturnType<typeof AgentSpec.judge>) =>
  Result.isFailure(judged) ? judged.failure : assert.fail("an answer")

describe("AgentSpec", () => {
  it("an answer with another exit code is none, and is kept", () => {
    const problem = problemOf(AgentSpec.judge(Result.succeed({ text: "Lima" }), ended(137)))
    assert.containSubset(problem, { code: "exit", textSoFar: "Lima" })
    assert.strictEqual(problem.message, "the agent ended with exit code 137")
  })

  it("of an agent that failed before it could say why, the exit code and its last words do", () => {
    const problem = problemOf(
      AgentSpec.judge(Result.fail(unreadable("it wrote nothing")), ended(2, "first\nno such model\n"))
    )
    assert.strictEqual(problem.code, "exit")
    assert.strictEqual(problem.message, "the agent ended with exit code 2, after saying: no such model")
  })

  it("what an agent says of its own failure goes before its exit code", () => {
    const failure = new AgentFailed({ code: "rate_limit", detail: "later", textSoFar: "half" })
    for (const exitCode of [0, 1]) {
      assert.deepStrictEqual(problemOf(AgentSpec.judge(Result.fail(failure), ended(exitCode))), {
        code: "rate_limit",
        message: "the agent failed: later (rate_limit)",
        textSoFar: "half"
      })
    }
  })

  it("a problem is one line of a bounded length, whatever the agent writes", () => {
    const long = `a\n\r\t${"x".repeat(1_000_000)}`
    const failure = new AgentFailed({ code: long, detail: long, textSoFar: "" })
    const { code, message } = problemOf(AgentSpec.judge(Result.fail(failure), ended(0)))
    assert.isAtMost(code.length, 200)
    assert.isAtMost(message.length, 4000)
    assert.notMatch(`${code}${message}`, /[\n\r\t]/u)
    const said = problemOf(AgentSpec.judge(Result.fail(unreadable("")), ended(1, long)))
    assert.isAtMost(said.message.length, 200)
  })
})
