/**
 * Runs a task: the host calls the model, and the sandbox only executes. The task's file changes are returned as a
 * patch.
 *
 * The provider of `sandbox:task` and the command use the same implementation.
 */
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ProxyFailed, WorkspaceFailed } from "@cogni/sandbox-core/SandboxReason"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { type Sandbox, SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { OpenSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import type { ChatModel } from "@cogni/sandbox-loop/ChatModel"
import * as HostLoop from "@cogni/sandbox-loop/HostLoop"
import * as LoopLimits from "@cogni/sandbox-loop/LoopLimits"
import type * as LoopEvent from "@cogni/sandbox-loop/LoopEvent"
import * as SocketTools from "@cogni/sandbox-loop/SocketTools"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import { Effect, Result } from "effect"
import type { Message } from "./agents/AgentFields.ts"
import type { HostTerms } from "./AgentRun.ts"
import type { GraphPatch } from "./events/GraphPatch.ts"
import { GraphId } from "./graphs/GraphId.ts"
import * as PlantedClone from "./internal/PlantedClone.ts"
import * as TaskPatch from "./internal/TaskPatch.ts"
import * as TaskPrompt from "./internal/TaskPrompt.ts"
import { type InClone, repositoryPath, type RepositoryPlace } from "./RepositoryUse.ts"

/** The spec of a task's sandbox, the limits of its loop, and the maximum size of its patch. */
export interface TaskPlan {
  readonly spec: OpenSpecInput & Pick<HostTerms, "llm" | "runId">
  readonly limits: Partial<LoopLimits.LoopLimits>
  readonly patchBytesMax: number
  /**
   * Host tools that the loop may call, besides those of the sandbox. They are called through the gateway of the run,
   * with its rules, approvals and audit, so the spec must name them in `tools`, and the proxy must have them.
   */
  readonly tools?: ReadonlyArray<Tool> | undefined
}

export interface TaskOptions<D, E, R> extends TaskPlan {
  /** The conversation; its last message is the task. */
  readonly messages: ReadonlyArray<Message>
  /**
   * Fails before the first model call if no patch can be made. Default: false. A patch that fails later has
   * a `problem` in the result, so that the answer and its cost are not lost: check it.
   */
  readonly requiresPatch?: boolean | undefined
  /** Receives each event as it happens. The task waits for the returned effect (back-pressure). */
  readonly see: (event: TaskProgress) => Effect.Effect<void>
  readonly inClone?: InClone<D, E, R> | undefined
}

/** Progress of a task: the opening of its sandbox, the events of its loop, and its result. */
export type TaskProgress =
  | LoopEvent.LoopProgress
  | { readonly type: "sandbox_opened" }
  | ({ readonly type: "loop_ended" } & TaskResult)

export interface TaskResult {
  readonly end: LoopEvent.LoopEnd
  readonly patch: GraphPatch
}

export interface TaskRunEnd<D> extends TaskResult {
  /** How the commits were delivered; undefined without a clone. */
  readonly delivery: D | undefined
  /** Why the commit of the changes in the clone failed. */
  readonly complaint: string | undefined
}

export const graphId = GraphId.make("sandbox:task")

/** Names the loop of the host in the ledger, where a graph with an agent names the agent. */
const agentId = "task"

/** The folder under `images/` whose image a task works in. */
export const image = "runtime"

export const defaultPatchBytesMax = 2 * 1024 * 1024

export const defaultRuntimeSecondsMax = LoopLimits.defaultLimits.runtimeSecondsMax

/** Seconds that a task may take beyond its loop: for the initial snapshot and the final patch. */
const patchSecondsMax = 2 * TaskPatch.commandSecondsMax + 30

/** Plans a task's sandbox: the host's terms, time and output for the patch, and a model that the host calls. */
export const plan = (
  terms: HostTerms,
  limits: Partial<LoopLimits.LoopLimits>,
  patchBytesMax = defaultPatchBytesMax
): TaskPlan => {
  const { runtimeSecondsMax = defaultRuntimeSecondsMax } = limits
  return {
    spec: {
      ...terms,
      limits: {
        ...terms.limits,
        runtimeSecondsMax: Math.min(86_400, runtimeSecondsMax + patchSecondsMax),
        outputRetainedBytesMax: Math.max(4 * 1024 * 1024, TaskPatch.outputBytesOf(patchBytesMax))
      },
      llm: { ...terms.llm, identity: { ...terms.llm.identity, graphId, agentId }, caller: "host" }
    },
    limits: { ...limits, runtimeSecondsMax },
    patchBytesMax
  }
}

/**
 * Runs a task to its end. Interruption ends the sandbox and waits until all its resources are removed.
 *
 * The result contains the outcome of the loop. Fails if the sandbox ends before or during the loop, or if a patch is
 * required and the initial snapshot fails.
 */
export const live = Effect.fn("TaskRun.live")(function* <D = undefined, E = never, R = never>(
  options: TaskOptions<D, E, R>
): Effect.fn.Return<TaskRunEnd<D>, SandboxError | E, ChatModel | RunStore | SandboxRunner | R> {
  const { runId } = options.spec
  const store = yield* RunStore
  const { delivery, value } = yield* PlantedClone.live(options.spec, options.inClone, (place, began) =>
    Effect.gen(function* () {
      const done = yield* inSandbox(options, place, began)
      // The delivery states the audit head of the run's calls; only the run record has the final one.
      const record =
        place === undefined ? undefined : yield* Effect.orElseSucceed(store.describe(runId), () => undefined)
      return { ...done, succeeded: done.end.outcome === "finished", auditHead: record?.llm?.auditHead }
    })
  )
  const { complaint, end, patch } = value
  return { complaint, delivery, end, patch }
})

type Work = Omit<TaskOptions<never, never, never>, "inClone">

/** Runs the loop in a sandbox. On return, the sandbox is removed and its record is written. */
const inSandbox = Effect.fnUntraced(function* (
  options: Work,
  place: RepositoryPlace | undefined,
  began: Effect.Effect<void>
) {
  const { see, spec } = options
  const runner = yield* SandboxRunner
  const sandbox = yield* runner.open(
    place === undefined ? spec : { ...spec, workspace: { type: "directory", path: place.workspacePath } }
  )
  yield* began
  yield* see({ type: "sandbox_opened" })
  const result = yield* work(options, sandbox, place === undefined ? sandbox.workspace : repositoryPath)
  yield* see({ type: "loop_ended", ...result })
  if (place === undefined || result.end.outcome !== "finished") return { ...result, complaint: undefined }
  // Commits the task's changes: a task leaves all of them uncommitted.
  const commit = yield* sandbox.exec(place.within(["/bin/true"]), { timeoutSecondsMax: commitSecondsMax })
  return { ...result, complaint: complaintOf(commit.output.stderr.text) }
}, Effect.scoped)

/** Runs the loop, and compares the files before and after it. */
const work = Effect.fnUntraced(function* (
  { limits, messages, patchBytesMax, requiresPatch = false, see, spec, tools = [] }: Work,
  sandbox: Sandbox,
  workingDirectory: string
) {
  const { llmSocketPath: socketPath, runId } = sandbox
  if (socketPath === undefined) return yield* new SandboxError({ runId, reason: unreachable })
  const base = yield* TaskPatch.begin(sandbox, workingDirectory)
  if (requiresPatch && Result.isFailure(base)) {
    const detail = `cannot be used for this task: ${base.failure}`
    const reason = new WorkspaceFailed({ path: workingDirectory, detail, remedy: TaskPatch.remedy })
    return yield* new SandboxError({ reason })
  }
  const end = yield* HostLoop.run(
    {
      at: { socketPath },
      model: spec.llm.model,
      messages: TaskPrompt.messages(messages, workingDirectory),
      tools: [
        ...HostLoop.executorTools(sandbox, {
          workingDirectory,
          toolResultBytesMax: limits.toolResultBytesMax
        }),
        ...tools.map((tool) => SocketTools.through(socketPath, tool))
      ],
      limits,
      ended: sandbox.ended
    },
    see
  )
  if (end.outcome === "sandbox_failed") return yield* end.error
  return { end, patch: yield* TaskPatch.end(sandbox, workingDirectory, base, patchBytesMax) }
})

/** Time limit of the commit. */
const commitSecondsMax = 60

/** Finds the error of the sandbox's program `cogni-repo`. Warnings of git are not errors. */
const complaintOf = (stderr: string): string | undefined => /^cogni-repo: [^\n]{1,500}/mu.exec(stderr)?.[0]

const unreachable = new ProxyFailed({
  detail: "its socket is not on this host",
  remedy: "Run this process on the engine's host, with the gateway in the same process"
})
