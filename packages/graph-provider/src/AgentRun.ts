/**
 * Run an agent on a task: what is started, its life in a sandbox, and what it came to.
 *
 * The command, the server and the graphs all call this, so that they mean the same by an answer. A command that is
 * sealed without an agent lives the same life, and its output is not read (`AgentOutput.unread`).
 */
import type { RunEvent } from "@cogni/sandbox-core/RunEvent"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Limits, type SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import { Data, Effect, Option, Result, Schema, Stream } from "effect"
import type { Agent, AgentTask, Capabilities } from "./agents/Agent.ts"
import {
  type AgentAnswer,
  type AgentEvent,
  type AgentFailed,
  type AgentReader,
  excerpt
} from "./agents/AgentOutput.ts"
import * as AgentSpeech from "./internal/AgentSpeech.ts"
import * as PlantedClone from "./internal/PlantedClone.ts"
import { type InClone, repositoryPath, type RepositoryPlace } from "./Repositories.ts"

/** What an agent is asked. */
export interface AgentRequest extends Pick<AgentTask, "messages" | "personality"> {
  /** It works in a repository of its workspace. */
  readonly hasRepository: boolean
}

/** What the host decides: everything in the spec of a run that does not follow from the agent. */
export interface HostTerms extends Omit<SandboxSpecInput, "argv" | "inputs"> {
  readonly runId: RunId
  readonly llm: NonNullable<SandboxSpecInput["llm"]>
}

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
export interface AnswerMissing {
  /** The agent's own code, `exit`, or `unreadable`. */
  readonly code: string
  /** One line, which may hold control characters of the agent's. */
  readonly message: string
  readonly textSoFar: string
}

/** What a run came to. */
export interface AgentRunEnd<D> {
  readonly result: RunResult
  readonly judged: Result.Result<AgentAnswer, AnswerMissing>
  /** What became of the commits, where there is a clone. */
  readonly delivery: D | undefined
}

const { runtimeSecondsMax: defaultRuntimeSecondsMax } = Schema.decodeSync(Limits)({})

/** How long an agent may take: as asked, or as it needs, or as any run may. */
export const runtimeSecondsOf = (agent: Agent, asked: number | undefined): number =>
  asked ?? agent.limits.runtimeSecondsMax ?? defaultRuntimeSecondsMax

/** What the agent cannot do of what is asked, known before anything is made. */
export const check = (
  { capabilities, id: agentId }: { readonly id: string; readonly capabilities: Capabilities },
  { hasRepository, personality }: Pick<AgentRequest, "hasRepository" | "personality">
): Result.Result<void, CapabilityMissing> => {
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
  return hasRepository && !capabilities.tools
    ? Result.fail(
        new CapabilityMissing({
          agentId,
          capability: "tools",
          detail: "calls no tools, so it can change no repository: choose an agent that does"
        })
      )
    : Result.succeed(undefined)
}

/** What the host says of limits and variables goes before what the agent needs. */
export const specOf = (
  agent: Agent,
  { hasRepository, messages, personality }: AgentRequest,
  terms: HostTerms
): SandboxSpecInput => {
  const task: AgentTask = {
    messages,
    model: terms.llm.model,
    runId: terms.runId,
    workingDirectory: hasRepository ? repositoryPath : Workspace.target,
    runtimeSecondsMax: runtimeSecondsOf(agent, terms.limits?.runtimeSecondsMax),
    personality
  }
  return {
    ...terms,
    argv: agent.argv(task),
    env: { ...agent.env(task), ...terms.env },
    inputs: agent.inputs(task),
    limits: { ...agent.limits, ...terms.limits }
  }
}

/**
 * Live a run to its end; interrupting it ends the run, and waits until nothing of it is left. `see` is told every event
 * as it happens, with what the agent has said in it, and sets the pace.
 */
export const live = Effect.fnUntraced(function* <E, R, D = undefined, E2 = never, R2 = never>(
  spec: SandboxSpecInput,
  reader: AgentReader,
  see: (event: RunEvent, said: ReadonlyArray<AgentEvent>) => Effect.Effect<void, E, R>,
  inClone?: InClone<D, E2, R2>
): Effect.fn.Return<AgentRunEnd<D>, SandboxError | E | E2, SandboxRunner | R | R2> {
  const runner = yield* SandboxRunner
  const speech = AgentSpeech.make(reader)
  const { delivery, value } = yield* PlantedClone.live(spec, inClone, (place, began) =>
    Effect.gen(function* () {
      const last = yield* runner.stream(place === undefined ? spec : inPlace(spec, place)).pipe(
        Stream.tap((event) => (event._tag === "PostureVerified" ? began : Effect.void)),
        Stream.tap((event) =>
          see(
            event,
            event._tag === "OutputReceived" && event.channel === "stdout" ? speech.hear(event.bytes) : []
          )
        ),
        Stream.runLast
      )
      const event = Option.getOrUndefined(last)
      if (event?._tag !== "RunEnded") return yield* Effect.die(new Error("a run ended without saying so"))
      const { result } = event
      const judged = judge(speech.end(), result)
      return { result, judged, succeeded: Result.isSuccess(judged), auditHead: result.llm?.auditHead }
    })
  )
  return { result: value.result, judged: value.judged, delivery }
})

/** An exit code other than 0 is never an answer, whatever the agent says beside it. */
export const judge = (
  read: Result.Result<AgentAnswer, AgentFailed>,
  { exitCode, output }: Pick<RunResult, "exitCode" | "output">
): Result.Result<AgentAnswer, AnswerMissing> => {
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

const inPlace = (spec: SandboxSpecInput, place: RepositoryPlace): SandboxSpecInput => {
  const [program = "", ...rest] = spec.argv
  return {
    ...spec,
    workspace: { type: "directory", path: place.workspacePath },
    argv: place.within([program, ...rest])
  }
}
