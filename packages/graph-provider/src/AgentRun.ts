/**
 * Runs an agent on a task: builds its spec, runs it in a sandbox, and judges its result.
 *
 * The command, the server and the graphs all use this module, so that they agree on what an answer is. A sealed command
 * without an agent takes the same path, but its output is not parsed (`AgentOutput.unread`).
 */
import type { RunEvent } from "@cogni/sandbox-core/RunEvent"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunJournal } from "@cogni/sandbox-core/RunJournal"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { OpenSpecInput, SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import type { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { Data, Effect, Option, Result, Stream } from "effect"
import type { Agent } from "./agents/Agent.ts"
import type { AgentTask } from "./agents/AgentFields.ts"
import type { Capabilities } from "./agents/AgentFields.ts"
import {
  type AgentAnswer,
  type AgentEvent,
  type AgentFailed,
  type AgentReader,
  excerpt
} from "./agents/AgentOutput.ts"
import * as AgentSkills from "./agents/AgentSkills.ts"
import * as AgentJournal from "./internal/AgentJournal.ts"
import * as AgentLimits from "./internal/AgentLimits.ts"
import * as AgentSpeech from "./internal/AgentSpeech.ts"
import * as PlantedClone from "./internal/PlantedClone.ts"
import { type InClone, repositoryPath, type RepositoryPlace } from "./RepositoryUse.ts"

/** The caller's part of an agent's task. */
export interface AgentRequest extends Pick<AgentTask, "messages" | "personality" | "session"> {
  /** True if the agent works in a repository inside its workspace. */
  readonly hasRepository: boolean
}

/** The host's part of a run's spec: everything that does not follow from the agent. */
export interface HostTerms extends Omit<OpenSpecInput, "inputs" | "preload"> {
  readonly runId: RunId
  readonly llm: NonNullable<SandboxSpecInput["llm"]>
}

/** The agent cannot do what the task asks for. */
export class CapabilityMissing extends Data.TaggedError("CapabilityMissing")<{
  readonly agentId: string
  readonly capability: "personalities" | "subagents" | "tools"
  readonly detail: string
}> {
  override get message(): string {
    return `${this.agentId} ${this.detail}`
  }
}

/** Why a run has no answer. */
export interface AnswerMissing {
  /** The agent's own code, `exit`, or `unreadable`. */
  readonly code: string
  /** One line. It can contain control characters from the agent. */
  readonly message: string
  readonly textSoFar: string
}

/** The result of an agent's run. */
export interface AgentRunEnd<D> {
  readonly result: RunResult
  readonly judged: Result.Result<AgentAnswer, AnswerMissing>
  /** How the commits were delivered; undefined without a clone. */
  readonly delivery: D | undefined
}

/** Checks that the agent can do the task, before any resource is created. */
export const check = (
  agent: { readonly id: string; readonly capabilities: Capabilities },
  {
    hasRepository,
    personality,
    subagentShareMax
  }: Pick<AgentRequest, "hasRepository" | "personality"> & Pick<Partial<LlmBudget>, "subagentShareMax">
): Result.Result<void, CapabilityMissing> => {
  const { capabilities, id: agentId } = agent
  if (personality !== undefined && !capabilities.personalities.includes(personality)) {
    const known = capabilities.personalities.join(", ")
    return Result.fail(
      new CapabilityMissing({
        agentId,
        capability: "personalities",
        detail:
          known === ""
            ? "has no personalities: omit the personality, or choose an agent that has one"
            : `has no personality ${personality}: choose one of ${known}`
      })
    )
  }
  return hasRepository && !capabilities.tools
    ? Result.fail(
        new CapabilityMissing({
          agentId,
          capability: "tools",
          detail: "calls no tools, so it cannot change a repository: choose an agent that does"
        })
      )
    : checkShare(agent, subagentShareMax)
}

/** Checks that a share for subagents can be enforced. */
const checkShare = (
  { capabilities, id: agentId }: Pick<Agent, "capabilities"> & { readonly id: string },
  share: number | undefined
): Result.Result<void, CapabilityMissing> =>
  share === undefined || capabilities.subagents !== undefined
    ? Result.void
    : Result.fail(
        new CapabilityMissing({
          agentId,
          capability: "subagents",
          detail:
            "does not say whether it marks the calls of subagents, so a share cannot be enforced: set its capability " +
            "subagents, or remove the share (subagentShareMax) from the run, the grant or the host"
        })
      )

/** Builds the spec of an agent's run. The host's limits and variables take precedence over the agent's. */
export const specOf = (
  agent: Agent,
  { hasRepository, messages, personality, session }: AgentRequest,
  terms: HostTerms
): SandboxSpecInput => {
  const task: AgentTask = {
    messages,
    model: terms.llm.model,
    runId: terms.runId,
    workingDirectory: hasRepository ? repositoryPath : SandboxPlace.target,
    runtimeSecondsMax: AgentLimits.runtimeSecondsOf(agent, terms.limits?.runtimeSecondsMax),
    personality,
    session
  }
  const argv = agent.argv(task)
  // Each changes the command, and a session often the variables too, so that loaded code would be of no use.
  const isOther = hasRepository || session !== undefined || AgentSkills.arePlacedBy(argv)
  return {
    ...terms,
    llm: { ...terms.llm, identity: { ...terms.llm.identity, agentId: agent.id } },
    argv,
    ...(agent.preload === undefined || isOther ? {} : { preload: agent.preload }),
    env: { ...agent.env(task), ...terms.env },
    inputs: agent.inputs(task),
    limits: { ...agent.limits, ...terms.limits }
  }
}

/**
 * Runs an agent until it ends. Interruption ends the run and waits until all its resources are removed.
 *
 * `see` receives each event as it happens, with the agent's events in it. The run waits for the returned effect
 * (back-pressure).
 */
export const live = Effect.fnUntraced(function* <E, R, D = undefined, E2 = never, R2 = never>(
  spec: SandboxSpecInput,
  reader: AgentReader,
  see: (event: RunEvent, said: ReadonlyArray<AgentEvent>) => Effect.Effect<void, E, R>,
  inClone?: InClone<D, E2, R2>
): Effect.fn.Return<AgentRunEnd<D>, SandboxError | E | E2, SandboxRunner | R | R2> {
  const runner = yield* SandboxRunner
  const journal = AgentJournal.make(yield* RunJournal, spec.runId)
  const speech = AgentSpeech.make(reader)
  const { delivery, value } = yield* PlantedClone.live(spec, inClone, (place, began) =>
    Effect.gen(function* () {
      yield* journal.hold
      const last = yield* runner.stream(place === undefined ? spec : inPlace(spec, place)).pipe(
        Stream.tap((event) => (event._tag === "PostureVerified" ? began : Effect.void)),
        Stream.tap((event) => {
          const said =
            event._tag === "OutputReceived" && event.channel === "stdout" ? speech.hear(event.bytes) : []
          return Effect.andThen(journal.write(said), see(event, said))
        }),
        Stream.runLast
      )
      const event = Option.getOrUndefined(last)
      if (event?._tag !== "RunEnded") return yield* Effect.die(new Error("a run ended without RunEnded"))
      const { result } = event
      const judged = judge(speech.end(), result)
      return { result, judged, succeeded: Result.isSuccess(judged), auditHead: result.llm?.auditHead }
    }).pipe(Effect.scoped)
  )
  return { result: value.result, judged: value.judged, delivery }
})

/** Judges a run. Only an answer with exit code 0 is a success, whatever the agent reports. */
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
