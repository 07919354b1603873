/**
 * An agent and a task, as the spec of a run and as what came of it. Pure.
 *
 * Whoever runs an agent (the graph provider, the command) asks here what to start, and how to understand its end, so
 * that both mean the same by an answer.
 */
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { Limits, SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Data, Result } from "effect"
import type { Agent, AgentTask } from "./Agent.ts"
import { type AgentAnswer, type AgentFailed, excerpt } from "./AgentOutput.ts"

/** The part of a spec that follows from an agent and its task. */
export type AgentPart = Pick<SandboxSpecInput, "argv" | "env" | "inputs" | "limits">

/** The agent cannot do what the task asks for. */
export class CapabilityMissing extends Data.TaggedError("CapabilityMissing")<{
  readonly agentId: string
  readonly capability: "personalities" | "tools"
  readonly detail: string
}> {
  override get message(): string {
    return `${this.agentId} ${this.detail}`
  }
}

/** The agent ended otherwise than with an answer. */
export interface Problem {
  /** The agent's own code, `exit`, or `unreadable`. */
  readonly code: string
  readonly message: string
  readonly textSoFar: string
}

/** What the agent cannot do of what is asked, known before anything is made. */
export const check = (
  agent: Agent,
  task: Pick<AgentTask, "personality"> & { readonly needsTools?: boolean | undefined }
): Result.Result<void, CapabilityMissing> => {
  const { capabilities, id: agentId } = agent
  const { personality } = task
  if (personality !== undefined && !capabilities.personalities.includes(personality)) {
    const known = capabilities.personalities.join(", ")
    return Result.fail(
      new CapabilityMissing({
        agentId,
        capability: "personalities",
        detail:
          known === ""
            ? "has no personalities: leave it out, or choose an agent that has them"
            : `has no personality ${personality}: choose one of ${known}`
      })
    )
  }
  return task.needsTools === true && !capabilities.tools
    ? Result.fail(
        new CapabilityMissing({
          agentId,
          capability: "tools",
          detail: "calls no tools, so it can change no repository: choose an agent that does"
        })
      )
    : Result.succeed(undefined)
}

/** What the caller says of limits goes before what the agent needs. */
export const make = (agent: Agent, task: AgentTask, limits: Partial<Limits> = {}): AgentPart => ({
  argv: agent.argv(task),
  env: agent.env(task),
  inputs: agent.inputs(task),
  limits: { ...agent.limits, ...limits }
})

/**
 * What the end of a run comes to. An exit code other than 0 is never an answer, whatever the agent says beside it.
 * A problem's message is one line, and may hold control characters of the agent's.
 */
export const judge = (
  read: Result.Result<AgentAnswer, AgentFailed>,
  { exitCode, output }: Pick<RunResult, "exitCode" | "output">
): Result.Result<AgentAnswer, Problem> => {
  if (Result.isSuccess(read) && exitCode === 0) return Result.succeed(read.success)
  const failed = Result.isFailure(read) ? read.failure : undefined
  const textSoFar = Result.isSuccess(read) ? read.success.text : read.failure.textSoFar
  if (failed !== undefined && (failed.code !== "unreadable" || exitCode === 0)) {
    const { code, detail } = failed
    const message = code === "unreadable" ? failed.message : `the agent failed: ${detail} (${code})`
    return Result.fail({ code: excerpt(code), message: flat(message), textSoFar })
  }
  const said = excerpt(output.stderr.text.trimEnd().split("\n").at(-1) ?? "")
  const after = said === "" ? "" : `, after saying: ${said}`
  return Result.fail({
    code: "exit",
    message: `the agent ended with exit code ${exitCode}${after}`,
    textSoFar
  })
}

const flat = (text: string): string => text.slice(0, 4000).replace(/\s+/gu, " ")
