/**
 * What came of a run, as text and as JSON. Pure.
 *
 * For an agent, standard output holds the answer and nothing else. An exit code other than 0 is never an answer,
 * whatever the agent says beside it.
 */
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { Agent, AgentAnswer } from "@cogni/sandbox-graph-provider/Agent"
import { Result } from "effect"
import { exitCode } from "./ExitCode.ts"
import { oneLine } from "./TerminalText.ts"

/** How an agent's run is to be understood. @category models */
export interface Verdict {
  readonly exitCode: number
  readonly answer: AgentAnswer | undefined
  /** Why there is no answer. */
  readonly problem: { readonly code: string; readonly message: string } | undefined
}

const lastLine = (text: string): string => oneLine(text.trimEnd().split("\n").at(-1) ?? "")

/** @category constructors */
export const judge = (agent: Agent, result: RunResult): Verdict => {
  const { stderr, stdout } = result.output
  const parsed = agent.parse(stdout.text)
  if (result.exitCode === 0 && Result.isSuccess(parsed)) {
    return { exitCode: 0, answer: parsed.success, problem: undefined }
  }
  if (Result.isFailure(parsed) && parsed.failure.code !== "unreadable") {
    const { code, detail } = parsed.failure
    return {
      exitCode: result.exitCode === 0 ? exitCode.noAnswer : result.exitCode,
      answer: undefined,
      problem: { code, message: `the agent failed: ${oneLine(detail)} (${oneLine(code)})` }
    }
  }
  const logs = `See: cogni-sandbox logs ${result.runId}`
  if (result.exitCode !== 0) {
    const said = lastLine(stderr.text)
    return {
      exitCode: result.exitCode,
      answer: undefined,
      problem: {
        code: "exit",
        message: `the agent ended with exit code ${result.exitCode}${said === "" ? "" : `, after saying: ${said}`}. ${logs}`
      }
    }
  }
  return {
    exitCode: exitCode.noAnswer,
    answer: undefined,
    problem: {
      code: "unreadable",
      message: `${Result.isFailure(parsed) ? oneLine(parsed.failure.message) : "the agent gave no answer"}. ${logs}`
    }
  }
}

/** What both kinds of run say of themselves. @category converting */
export const facts = (result: RunResult, demo: boolean) => ({
  ...(demo ? { demo: true } : {}),
  peak: result.peak,
  durationMs: Math.round(result.durationMs),
  timings: result.timings.map(({ durationMs, phase }) => ({
    phase,
    durationMs: Math.round(durationMs * 10) / 10
  })),
  ...(result.llm === undefined ? {} : { llm: result.llm }),
  ...(result.suspicions.length === 0 ? {} : { suspicions: result.suspicions })
})

/** @category converting */
export const commandJson = (result: RunResult, demo: boolean): object => ({
  ok: result.exitCode === 0,
  runId: result.runId,
  exitCode: result.exitCode,
  output: result.output,
  ...facts(result, demo)
})

/** @category converting */
export const agentJson = (agent: Agent, result: RunResult, verdict: Verdict, demo: boolean): object => ({
  ok: verdict.problem === undefined,
  runId: result.runId,
  agent: agent.id,
  exitCode: verdict.exitCode,
  ...(verdict.answer === undefined
    ? {}
    : {
        answer: verdict.answer.text,
        ...(verdict.answer.usage === undefined ? {} : { usage: verdict.answer.usage }),
        ...(verdict.answer.sessionId === undefined ? {} : { sessionId: verdict.answer.sessionId })
      }),
  ...(verdict.problem === undefined
    ? {}
    : {
        error: {
          code: "agent",
          reason: verdict.problem.code,
          message: verdict.problem.message,
          isRetryable: false
        }
      }),
  ...facts(result, demo)
})
