/** From what was typed to the sandbox of a task, its way out and its limits. Pure. */
import { defaultLimits } from "@cogni/sandbox-loop/HostLoop"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as Task from "@cogni/sandbox-graph-provider/Task"
import { Result } from "effect"
import type { Refusal } from "./Failure.ts"
import * as RunPlan from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"

/** What was typed; the same words as of a run. */
export interface TaskFlags extends Pick<
  RunPlan.RunFlags,
  | "workspace"
  | "model"
  | "timeoutSeconds"
  | "memoryBytes"
  | "diskBytes"
  | "cpus"
  | "processes"
  | "image"
  | "callsMax"
  | "inputTokensMax"
  | "outputTokensMax"
  | "costUsdMax"
  | "canaries"
  | "demo"
> {
  readonly stepsMax?: number | undefined
}

export interface TaskPlan {
  readonly spec: Omit<SandboxSpecInput, "argv">
  readonly model: string
  readonly wayOut: RunPlan.WayOut
  readonly limits: { readonly runtimeSecondsMax: number; readonly stepsMax?: number }
  /** Something the caller may not expect. */
  readonly note?: string | undefined
}

/** Where the model is, and how the sandbox is held, are what they are for a run; only who asks is another. */
export const make = (
  flags: TaskFlags,
  runId: RunId,
  settings: Settings["Service"]
): Result.Result<TaskPlan, Refusal> => {
  const { stepsMax } = flags
  const runtimeSecondsMax = flags.timeoutSeconds ?? defaultLimits.runtimeSecondsMax
  // Without a model there is no task, so a command's freedom to have none is not asked for.
  const named = flags.demo
    ? Result.succeed(flags.model)
    : Result.map(RunPlan.upstream(settings, flags.model), ({ model }) => model)
  return Result.flatMap(named, (model) =>
    Result.map(
      RunPlan.make({ _tag: "Command", argv: ["task"] }, { ...RunPlan.noFlags, ...flags, model }, settings),
      ({ note, spec: { argv: _argv, ...held }, wayOut }): TaskPlan => ({
        spec: {
          ...held,
          runId,
          limits: {
            ...held.limits,
            runtimeSecondsMax: Math.min(86_400, runtimeSecondsMax + Task.patchSecondsMax)
          },
          ...(held.llm === undefined ? {} : { llm: hostCalls(held.llm) })
        },
        model: modelOf(wayOut) ?? "",
        wayOut,
        limits: { runtimeSecondsMax, ...(stepsMax === undefined ? {} : { stepsMax }) },
        note
      })
    )
  )
}

const modelOf = (wayOut: RunPlan.WayOut): string | undefined =>
  wayOut._tag === "None" ? undefined : wayOut.model

const hostCalls = (llm: NonNullable<SandboxSpecInput["llm"]>): NonNullable<SandboxSpecInput["llm"]> => ({
  ...llm,
  identity: { ...llm.identity, graphId: Task.graphId },
  caller: "host"
})
