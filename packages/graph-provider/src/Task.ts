/**
 * The agent whose model the host asks: what it is told, what it may do, and what comes of it.
 *
 * A task is a loop (`HostLoop`) over an executor, and the difference between the beginning and the end of its files. It
 * knows nothing of graphs: the provider of `sandbox:task` and the command run the same one.
 */
import type { ChatEndpoint, ChatModel } from "@cogni/sandbox-loop/ChatModel"
import type { Executor } from "@cogni/sandbox-core/Executor"
import * as HostLoop from "@cogni/sandbox-loop/HostLoop"
import { SandboxError, WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import { Effect, Option, Result } from "effect"
import type { Message } from "./agents/Agent.ts"
import type { AgentDescriptor } from "./graphs/AgentCatalog.ts"
import { GraphId } from "./graphs/GraphId.ts"
import type { GraphPatch } from "./events/GraphPatch.ts"
import * as TaskPatch from "./internal/TaskPatch.ts"
import * as TaskPrompt from "./internal/TaskPrompt.ts"

export interface TaskOptions {
  /** A sandbox that is open. */
  readonly executor: Executor
  /** Fails when it can be used no more: `Sandbox.ended`. */
  readonly ended?: Effect.Effect<never, SandboxError> | undefined
  /** Where the model is reached: `Sandbox.llmSocketPath`. */
  readonly at: ChatEndpoint
  readonly model: string
  /** The last one is what is asked. */
  readonly messages: ReadonlyArray<Message>
  /** What is worked on, and what the patch is of. Absent: the workspace. */
  readonly workingDirectory?: string | undefined
  readonly limits?: Partial<HostLoop.LoopLimits> | undefined
  /** Without a patch the work is of no use: where none can be made, no model is asked. */
  readonly requiresPatch?: boolean | undefined
  /** Absent: {@link defaultPatchBytesMax}. */
  readonly patchBytesMax?: number | undefined
  readonly tell?: HostLoop.Tell | undefined
}

export interface TaskResult {
  readonly end: HostLoop.LoopEnd
  /** Absent where the sandbox was over before it could be made. */
  readonly patch: GraphPatch | undefined
}

export const graphId = GraphId.make("sandbox:task")

/** The folder under `images/` whose image a task works in. */
export const image = "runtime"

export const defaultPatchBytesMax = 2 * 1024 * 1024

/** What a sandbox must keep of a command's output, for a patch of so many bytes. */
export const outputRetainedBytesOf: (patchBytesMax: number) => number = TaskPatch.outputBytesOf

/** How much longer than its loop a task may take: for the state at the beginning, and the patch at the end. */
export const patchSecondsMax = 2 * TaskPatch.commandSecondsMax + 30

/** For catalogs. */
export const descriptor: AgentDescriptor = {
  agentId: graphId,
  graphId,
  name: "Task",
  description:
    "The host asks the model; the sandbox only runs commands, reads and writes. What changed comes back as a patch.",
  modelApi: "chat-completions",
  capabilities: { tools: true, streaming: "delta", toolEvents: true, history: "messages", personalities: [] }
}

/**
 * How it went is in the end of its loop; it fails where the sandbox was over before that began, or gives no patch that
 * is required.
 */
export const run = Effect.fn("Task.run")(function* (
  options: TaskOptions
): Effect.fn.Return<TaskResult, SandboxError, ChatModel> {
  const { at, ended, executor, limits, model, patchBytesMax = defaultPatchBytesMax, tell } = options
  const workingDirectory = options.workingDirectory ?? executor.workspace
  const base = yield* TaskPatch.begin(executor, workingDirectory)
  if (options.requiresPatch === true && Result.isFailure(base)) {
    const detail = `would be changed in vain: ${base.failure}`
    const reason = new WorkspaceFailed({ path: workingDirectory, detail, remedy: TaskPatch.remedy })
    return yield* new SandboxError({ reason })
  }
  const end = yield* HostLoop.run(
    {
      at,
      model,
      messages: TaskPrompt.messages(options.messages, workingDirectory),
      tools: HostLoop.executorTools(executor, {
        workingDirectory,
        ...(limits?.toolResultBytesMax === undefined ? {} : { toolResultBytesMax: limits.toolResultBytesMax })
      }),
      limits,
      ended
    },
    tell
  )
  if (end.outcome === "sandbox_failed") return { end, patch: undefined }
  const made = yield* Effect.option(TaskPatch.end(executor, workingDirectory, base, patchBytesMax))
  return { end, patch: Option.getOrUndefined(made) }
})
