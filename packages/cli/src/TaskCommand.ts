/**
 * `cogni-sandbox task`: does a task in a directory. This process asks the model.
 *
 * The sandbox works in the directory itself, and its changes are also reported as a patch. Tool calls are shown as they
 * happen. The answer goes to standard output, and the patch after it, or to a file.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as TaskRun from "@cogni/sandbox-graph-provider/TaskRun"
import type * as HostFile from "@cogni/sandbox-host-files/HostFile"
import * as AiSdkChatModel from "@cogni/sandbox-loop/AiSdkChatModel"
import { Effect, Layer, Result, type Stdio } from "effect"
import * as Composition from "./Composition.ts"
import * as Connections from "./Connections.ts"
import { exitCode } from "./ExitCode.ts"
import { refusal } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import * as Progress from "./Progress.ts"
import * as Prompt from "./Prompt.ts"
import { formatMillis } from "./Quantity.ts"
import * as Reaping from "./Reaping.ts"
import { runIdOf } from "./RunCommand.ts"
import * as RunPlan from "./RunPlan.ts"
import { Settings } from "./Settings.ts"
import * as TaskReport from "./TaskReport.ts"
import * as TerminalApproval from "./TerminalApproval.ts"
import * as UserFiles from "./UserFiles.ts"

type TaskInput = Flags.Typed<typeof Flags.task> & { readonly prompt?: string | undefined }

export const task = (input: TaskInput) =>
  TerminalApproval.around(input.askTools, (approvals) => working(input, approvals))

const working = Effect.fnUntraced(function* (
  input: TaskInput,
  approvals: Layer.Layer<never, never, Stdio.Stdio>
) {
  const settings = yield* Settings
  const runId = yield* runIdOf(input)
  const source = yield* Effect.fromResult(Prompt.sourceOf(input))
  if (source === undefined) {
    return yield* refusal(
      "usage",
      "there is nothing to do",
      'Give a task (task "…", task -, --prompt-file FILE)'
    )
  }
  const planned = yield* Effect.fromResult(plan(input, runId, settings))
  const prompt = yield* Prompt.read(source, input.workspace)
  const file = yield* UserFiles.reserve("--patch", input.patch, input.workspace)
  const { auditBodies, proxy } = input
  const result = yield* Effect.gen(function* () {
    const names = planned.task.spec.tools ?? []
    // Made once, for the gateway that calls them and for the loop that describes them to the model.
    const hostTools = yield* Composition.hostTools(settings, Connections.operator(settings, { runId }), names)
    const tools = hostTools.filter(({ name }) => names.includes(name))
    const runner = Composition.runner(settings, { ...planned, hostTools, proxy, auditBodies })
    return yield* Effect.gen(function* () {
      const progress = yield* Progress.make(input, planned.note)
      return yield* follow({ ...planned.task, tools }, prompt, input.patch !== undefined, progress)
    }).pipe(Effect.provide(Layer.provide(runner, approvals)))
  }).pipe(Effect.scoped)
  yield* tell(input, runId, result, file)
}, Effect.scoped)

const wayOutOf = (flags: RunPlan.RunFlags, settings: Settings["Service"]) =>
  Result.flatMap(RunPlan.modelWayOut(flags, settings), (wayOut) =>
    Result.map(
      Result.andThen(RunPlan.toolsNamed(flags), () => RunPlan.paid(settings, wayOut)),
      () => wayOut
    )
  )

/** Plans a task. Upstream and sandbox are configured as for a run, but the host asks the model. */
export const plan = (
  flags: RunPlan.RunFlags & Pick<TaskInput, "stepsMax">,
  runId: RunId,
  settings: Settings["Service"]
) =>
  Result.map(wayOutOf(flags, settings), (wayOut) => ({
    task: TaskRun.plan(
      {
        ...RunPlan.termsOf(flags, settings.imageOf(TaskRun.image)),
        runId,
        llm: RunPlan.llmOf(flags, settings, wayOut)
      },
      {
        runtimeSecondsMax: flags.timeoutSeconds ?? TaskRun.defaultRuntimeSecondsMax,
        ...(flags.stepsMax === undefined ? {} : { stepsMax: flags.stepsMax })
      }
    ),
    wayOut,
    note: RunPlan.noteOf(flags, settings, wayOut)
  }))

/** Executes a task. When this returns, the sandbox is gone. */
const follow = Effect.fnUntraced(function* (
  plan: TaskRun.TaskPlan,
  prompt: string,
  requiresPatch: boolean,
  progress: Progress.Progress
) {
  const tidy = yield* Reaping.inBackground
  yield* progress.now("preparing a sandbox")
  const see = (event: TaskRun.TaskProgress) => {
    switch (event.type) {
      case "sandbox_opened":
        return tidy.begin
      case "step_started":
        return progress.now(`step ${event.step}: asking the model`)
      case "loop_ended": {
        const { durationMs } = event.end
        const summary = `${TaskReport.summary(event.end)}, after ${formatMillis(durationMs)}`
        return Effect.andThen(progress.rest, progress.note(`${plan.spec.runId}: ${summary}`))
      }
      default: {
        const line = TaskReport.lineOf(event)
        return line === undefined ? Effect.void : progress.note(line)
      }
    }
  }
  const result = yield* TaskRun.live({
    ...plan,
    messages: [{ role: "user", content: prompt }],
    requiresPatch,
    see
  }).pipe(Effect.provide(AiSdkChatModel.layer()), Effect.ensuring(progress.rest))
  yield* tidy.end
  return result
})

/** Reports a task: the answer first, then the changes, then any problem. */
const tell = Effect.fnUntraced(function* (
  input: TaskInput,
  runId: string,
  result: TaskRun.TaskResult,
  reserved: HostFile.Reservation | undefined
) {
  const output = yield* Output.Output
  const { end, patch } = result
  const { text } = patch
  if (text !== undefined && reserved !== undefined) yield* save(reserved, text)
  const file = text === undefined ? undefined : reserved?.path
  yield* output.exitWith(exitCode[TaskReport.exitOf(result)])
  if (input.output === "json") return yield* Output.json(TaskReport.json(result, runId, input.demo, file))
  if (end.text !== "") yield* output.stdout(`${end.text}\n`)
  if (text !== undefined && text !== "" && file === undefined) yield* output.stdout(`\n${text}`)
  const problem = TaskReport.problemOf(result)
  const told = TaskReport.changes(result, file)
  if (told !== problem && (!input.quiet || patch.problem !== undefined)) yield* output.stderr(`· ${told}\n`)
  if (problem !== undefined) yield* output.stderr(`cogni-sandbox: ${runId}: ${problem}\n`)
})

const save = ({ path, write }: HostFile.Reservation, text: string) =>
  Effect.mapError(write(text), ({ detail }) =>
    refusal(
      "input",
      `the patch cannot be written to ${path}: it ${detail}`,
      "The changes are in the workspace; name another file with --patch"
    )
  )
