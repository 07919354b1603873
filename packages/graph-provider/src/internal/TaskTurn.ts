/** One task in one sandbox, in a clone where the request names a repository: from a spec to what became of it. */
import * as Canary from "@cogni/sandbox-core/Canary"
import { ChatModel } from "@cogni/sandbox-loop/ChatModel"
import type { CommandLine } from "@cogni/sandbox-core/Executor"
import type { LoopLimits, LoopProgress, Tell } from "@cogni/sandbox-loop/HostLoop"
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { ProxyFailed, SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect, type Scope } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import type { GraphPatch } from "../events/GraphPatch.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import {
  type Repositories,
  repositoryPath,
  type RepositoryRequest,
  type RepositoryUnavailable
} from "../Repositories.ts"
import * as Task from "../Task.ts"
import type { Outcome } from "./GraphEnd.ts"
import type { GraphWork } from "./GraphWork.ts"
import type { Admitted } from "./TaskAdmission.ts"

export interface TaskTurn {
  readonly request: GraphRunRequest
  readonly context: RunContext
  readonly admitted: Admitted
  readonly limits: Partial<LoopLimits> | undefined
  readonly patchBytesMax: number
  readonly work: GraphWork
}

export interface TaskTurnServices {
  readonly chat: ChatModel["Service"]
  readonly repositories: Repositories["Service"]
  readonly runner: SandboxRunner["Service"]
  readonly store: RunStore["Service"]
}

/** Interrupting it ends the run, and waits until nothing of it is left. */
export const live = (
  turn: TaskTurn,
  services: TaskTurnServices
): Effect.Effect<Outcome, SandboxError | RepositoryUnavailable> => {
  const { repository } = turn.request
  return repository === undefined
    ? Effect.map(
        inSandbox(turn, services, { spec: turn.admitted.spec, began: Effect.void }),
        ({ end, patch }): Outcome => ({ _tag: "Looped", end, patch, delivery: undefined })
      )
    : inRepository(turn, services, repository)
}

interface Place {
  readonly spec: Admitted["spec"]
  readonly workingDirectory?: string | undefined
  /** For whoever must know that somebody works in the workspace now. */
  readonly began: Effect.Effect<void>
  /** Commits what a task has left uncommitted, which is all of it. */
  readonly commit?: CommandLine | undefined
}

/** When this returns, the sandbox is gone, and its record is written. */
const inSandbox = Effect.fnUntraced(function* (
  { admitted, limits, patchBytesMax, request, work }: TaskTurn,
  { chat, runner }: TaskTurnServices,
  { began, commit, spec, workingDirectory }: Place
): Effect.fn.Return<Looped, SandboxError, Scope.Scope> {
  const sandbox = yield* runner.open(spec)
  work.claimed()
  yield* began
  const { llmSocketPath: socketPath } = sandbox
  if (socketPath === undefined) return yield* new SandboxError({ runId: sandbox.runId, reason: unreachable })
  yield* work.tell([{ type: "status", phase: "entrypoint" }])
  const { end, patch } = yield* Task.run({
    executor: sandbox,
    ended: sandbox.ended,
    at: { socketPath },
    model: request.model,
    messages: request.messages,
    workingDirectory,
    limits: { ...limits, runtimeSecondsMax: admitted.runtimeSecondsMax },
    patchBytesMax,
    tell: teller(work)
  }).pipe(Effect.provideService(ChatModel, chat))
  if (end.outcome === "sandbox_failed") return yield* end.error
  yield* work.tell([
    { type: "status", phase: "agent" },
    ...(patch === undefined
      ? []
      : [{ type: "status", phase: "patch", label: describe(patch), patch } as const])
  ])
  if (commit === undefined || end.outcome !== "finished") return { end, patch, complaint: undefined }
  const { output } = yield* sandbox.exec(commit, { timeoutSecondsMax: commitSecondsMax })
  return { end, patch, complaint: complaintOf(output.stderr.text) }
}, Effect.scoped)

interface Looped extends Pick<Extract<Outcome, { readonly _tag: "Looped" }>, "end" | "patch"> {
  /** Why what changed was not committed, where it was to be. */
  readonly complaint: string | undefined
}

/** Of the sandbox's own program in a clone; what git itself warns of is no reason. */
const complaintOf = (stderr: string): string | undefined => /^cogni-repo: [^\n]{1,500}/mu.exec(stderr)?.[0]

/** How long a commit of everything may take. */
const commitSecondsMax = 60

const inRepository = Effect.fnUntraced(function* (
  turn: TaskTurn,
  services: TaskTurnServices,
  repository: RepositoryRequest
) {
  const { runId } = turn.context
  const { spec } = turn.admitted
  const planted = (spec.canaries ?? "off") === "off" ? Canary.none : yield* Canary.plant
  const { delivery, value } = yield* services.repositories.around(
    { ...repository, runId, canaries: planted.canaries },
    ({ within, workspacePath }, began) =>
      Effect.gen(function* () {
        const place: Place = {
          spec: { ...spec, workspace: { type: "directory", path: workspacePath } },
          workingDirectory: repositoryPath,
          commit: within(["/bin/true"]),
          began
        }
        const looped = yield* inSandbox(turn, services, place).pipe(
          Effect.provideService(Canary.Planting, Effect.succeed(planted))
        )
        // Who sends commits on states with which calls they were made; the record has the last word on those.
        const record = yield* Effect.orElseSucceed(services.store.describe(runId), () => undefined)
        return {
          ...looped,
          succeeded: looped.end.outcome === "finished",
          auditHead: record?.llm?.auditHead
        }
      })
  )
  const { complaint, end, patch } = value
  const problem =
    complaint === undefined || delivery.problem !== undefined
      ? delivery.problem
      : { reason: "CommitFailed", message: `${complaint}. What changed is in the patch` }
  return { _tag: "Looped", end, patch, delivery: { ...delivery, problem } } satisfies Outcome
})

const unreachable = new ProxyFailed({
  detail: "its socket does not lie on this host",
  remedy: "Use the gateway in this process: its sockets do"
})

/** What is said between two tool calls stands by itself. */
const teller = ({ tell }: GraphWork): Tell => {
  let hasSpoken = false
  let isNew = true
  return (event) => {
    if (event.type === "step_started") isNew = true
    if (event.type !== "text_delta") return tell(eventsOf(event))
    const gap = hasSpoken && isNew ? "\n\n" : ""
    hasSpoken = true
    isNew = false
    return tell([{ type: "text_delta", delta: `${gap}${event.delta}` }])
  }
}

const eventsOf = (event: LoopProgress): ReadonlyArray<AiEvent> => {
  switch (event.type) {
    case "text_delta":
      return [{ type: "text_delta", delta: event.delta }]
    case "tool_call_started":
      return [{ type: "tool_call_start", toolCallId: event.id, toolName: event.name, args: event.input }]
    case "tool_call_ended":
      return [
        {
          type: "tool_call_result",
          toolCallId: event.id,
          result: event.content,
          ...(event.isError ? { isError: true } : {})
        }
      ]
    case "step_started":
    case "step_ended":
      return []
  }
}

const describe = ({ bytes, files, problem }: GraphPatch): string =>
  problem ?? `${files} ${files === 1 ? "file" : "files"}, ${bytes} bytes`
