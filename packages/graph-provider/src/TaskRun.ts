/**
 * Run a task: the host asks the model, and the sandbox only executes. What is different in its files at the end comes
 * back as a patch.
 *
 * The provider of `sandbox:task` and the command run the same one.
 */
import { ProxyFailed, SandboxError, WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { type Sandbox, SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import type { ChatModel } from "@cogni/sandbox-loop/ChatModel"
import * as HostLoop from "@cogni/sandbox-loop/HostLoop"
import { Effect, Option, Result } from "effect"
import type { Message } from "./agents/Agent.ts"
import type { HostTerms } from "./AgentRun.ts"
import type { GraphPatch } from "./events/GraphPatch.ts"
import { GraphId } from "./graphs/GraphId.ts"
import * as PlantedClone from "./internal/PlantedClone.ts"
import * as TaskPatch from "./internal/TaskPatch.ts"
import * as TaskPrompt from "./internal/TaskPrompt.ts"
import { type InClone, repositoryPath, type RepositoryPlace } from "./Repositories.ts"

/** What a sandbox is opened with, and what the loop over it may take. */
export interface TaskPlan {
  readonly spec: Omit<SandboxSpecInput, "argv"> & Pick<HostTerms, "llm" | "runId">
  readonly limits: Partial<HostLoop.LoopLimits>
  readonly patchBytesMax: number
}

export interface TaskOptions<D, E, R> extends TaskPlan {
  /** The last one is what is asked. */
  readonly messages: ReadonlyArray<Message>
  /** Without a patch the work is of no use: where none can be made, no model is asked. */
  readonly requiresPatch?: boolean | undefined
  /** Told what happens as it happens; its pace is the task's. */
  readonly see: (event: TaskProgress) => Effect.Effect<void>
  readonly inClone?: InClone<D, E, R> | undefined
}

/** What can be seen of a task: its loop, between the opening of its sandbox and what it came to. */
export type TaskProgress =
  | HostLoop.LoopProgress
  | { readonly type: "sandbox_opened" }
  | ({ readonly type: "loop_ended" } & TaskResult)

export interface TaskResult {
  readonly end: HostLoop.LoopEnd
  /** Absent where the sandbox was over before it could be made. */
  readonly patch: GraphPatch | undefined
}

export interface TaskRunEnd<D> extends TaskResult {
  /** What became of the commits, where there is a clone. */
  readonly delivery: D | undefined
  /** Why what changed was not committed in the clone. */
  readonly complaint: string | undefined
}

export const graphId = GraphId.make("sandbox:task")

/** The folder under `images/` whose image a task works in. */
export const image = "runtime"

export const defaultPatchBytesMax = 2 * 1024 * 1024

export const defaultRuntimeSecondsMax = HostLoop.defaultLimits.runtimeSecondsMax

/** How much longer than its loop a task may take: for the state at the beginning, and the patch at the end. */
const patchSecondsMax = 2 * TaskPatch.commandSecondsMax + 30

/** The sandbox of a task: besides what the host decides, time and output for the patch, and a model the host asks. */
export const plan = (
  terms: HostTerms,
  limits: Partial<HostLoop.LoopLimits>,
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
      llm: { ...terms.llm, identity: { ...terms.llm.identity, graphId }, caller: "host" }
    },
    limits: { ...limits, runtimeSecondsMax },
    patchBytesMax
  }
}

/**
 * Live a task to its end; interrupting it ends the sandbox, and waits until nothing of it is left. How it went is in
 * the end of its loop; it fails where the sandbox was over before that began or while it went on, or gives no patch
 * that is required.
 */
export const live = Effect.fn("TaskRun.live")(function* <D = undefined, E = never, R = never>(
  options: TaskOptions<D, E, R>
): Effect.fn.Return<TaskRunEnd<D>, SandboxError | E, ChatModel | RunStore | SandboxRunner | R> {
  const { runId } = options.spec
  const store = yield* RunStore
  const { delivery, value } = yield* PlantedClone.live(options.spec, options.inClone, (place, began) =>
    Effect.gen(function* () {
      const done = yield* inSandbox(options, place, began)
      // Who sends commits on states with which calls they were made; the record has the last word on those.
      const record =
        place === undefined ? undefined : yield* Effect.orElseSucceed(store.describe(runId), () => undefined)
      return { ...done, succeeded: done.end.outcome === "finished", auditHead: record?.llm?.auditHead }
    })
  )
  const { complaint, end, patch } = value
  return { complaint, delivery, end, patch }
})

type Work = Omit<TaskOptions<never, never, never>, "inClone">

/** When this returns, the sandbox is gone, and its record is written. */
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
  // Commits what a task has left uncommitted, which is all of it.
  const commit = yield* sandbox.exec(place.within(["/bin/true"]), { timeoutSecondsMax: commitSecondsMax })
  return { ...result, complaint: complaintOf(commit.output.stderr.text) }
}, Effect.scoped)

/** The loop, and the difference between the beginning and the end of its files. */
const work = Effect.fnUntraced(function* (
  { limits, messages, patchBytesMax, requiresPatch = false, see, spec }: Work,
  sandbox: Sandbox,
  workingDirectory: string
) {
  const { llmSocketPath: socketPath, runId } = sandbox
  if (socketPath === undefined) return yield* new SandboxError({ runId, reason: unreachable })
  const base = yield* TaskPatch.begin(sandbox, workingDirectory)
  if (requiresPatch && Result.isFailure(base)) {
    const detail = `would be changed in vain: ${base.failure}`
    const reason = new WorkspaceFailed({ path: workingDirectory, detail, remedy: TaskPatch.remedy })
    return yield* new SandboxError({ reason })
  }
  const end = yield* HostLoop.run(
    {
      at: { socketPath },
      model: spec.llm.model,
      messages: TaskPrompt.messages(messages, workingDirectory),
      tools: HostLoop.executorTools(sandbox, {
        workingDirectory,
        toolResultBytesMax: limits.toolResultBytesMax
      }),
      limits,
      ended: sandbox.ended
    },
    see
  )
  if (end.outcome === "sandbox_failed") return yield* end.error
  const made = yield* Effect.option(TaskPatch.end(sandbox, workingDirectory, base, patchBytesMax))
  return { end, patch: Option.getOrUndefined(made) }
})

/** How long a commit of everything may take. */
const commitSecondsMax = 60

/** Of the sandbox's own program in a clone; what git itself warns of is no reason. */
const complaintOf = (stderr: string): string | undefined => /^cogni-repo: [^\n]{1,500}/mu.exec(stderr)?.[0]

const unreachable = new ProxyFailed({
  detail: "its socket does not lie on this host",
  remedy: "Run it where the engine is, with the gateway in this process: its sockets lie on this host"
})
