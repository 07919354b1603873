/**
 * `cogni-sandbox task`: a task in a directory, whose model this process asks.
 *
 * The sandbox works in the directory itself; what it changed is told as a patch besides. What the model calls is shown
 * as it happens; the answer goes to standard output, and the patch after it, or into a file.
 */
import type { LoopProgress } from "@cogni/sandbox-loop/HostLoop"
import { ProxyFailed, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import * as Task from "@cogni/sandbox-graph-provider/Task"
import * as AiSdkChatModel from "@cogni/sandbox-loop/AiSdkChatModel"
import { Effect } from "effect"
import * as Composition from "./Composition.ts"
import { exitCode } from "./ExitCode.ts"
import { Refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import * as Progress from "./Progress.ts"
import * as Prompt from "./Prompt.ts"
import { formatMillis } from "./Quantity.ts"
import * as Reaping from "./Reaping.ts"
import { runIdOf } from "./RunCommand.ts"
import { Settings } from "./Settings.ts"
import * as TaskPlan from "./TaskPlan.ts"
import * as TaskReport from "./TaskReport.ts"
import * as UserFiles from "./UserFiles.ts"

export interface TaskInput extends TaskPlan.TaskFlags {
  readonly prompt?: string | undefined
  readonly promptFile?: string | undefined
  readonly patch?: string | undefined
  readonly runId?: string | undefined
  readonly output: Output.OutputFormat
  readonly quiet: boolean
}

export const task = Effect.fnUntraced(function* (input: TaskInput) {
  const settings = yield* Settings
  const runId = yield* runIdOf(input)
  const source = yield* sourceOf(input)
  const plan = yield* Effect.fromResult(TaskPlan.make(input, runId, settings))
  const prompt = yield* Prompt.read(source, input.workspace)
  const file = yield* UserFiles.reservePatch(input.patch, input.workspace)
  const result = yield* Effect.gen(function* () {
    const progress = yield* Progress.make({ quiet: input.quiet })
    if (plan.note !== undefined) yield* progress.note(plan.note)
    return yield* follow(plan, prompt, input.patch !== undefined, progress)
  }).pipe(
    Effect.provide(Composition.runner(settings, { ...plan, proxy: "gateway", auditBodies: false })),
    Effect.scoped
  )
  if (result.end.outcome === "sandbox_failed") return yield* result.end.error
  yield* tell(input, runId, result, file)
}, Effect.scoped)

/** When this returns, the sandbox is gone. */
const follow = Effect.fnUntraced(function* (
  plan: TaskPlan.TaskPlan,
  prompt: string,
  requiresPatch: boolean,
  progress: Progress.Progress
) {
  const runner = yield* SandboxRunner
  const tidy = yield* Reaping.inBackground
  yield* progress.now("preparing a sandbox")
  const tell = (event: LoopProgress) => {
    const line = TaskReport.lineOf(event)
    return line !== undefined
      ? progress.note(line)
      : event.type === "step_started"
        ? progress.now(`step ${event.step}: asking the model`)
        : Effect.void
  }
  const result = yield* Effect.gen(function* () {
    const sandbox = yield* runner.open(plan.spec)
    yield* tidy.begin
    const { llmSocketPath: socketPath, runId } = sandbox
    if (socketPath === undefined) return yield* new SandboxError({ runId, reason: unreachable })
    const result = yield* Task.run({
      executor: sandbox,
      ended: sandbox.ended,
      at: { socketPath },
      model: plan.model,
      messages: [{ role: "user", content: prompt }],
      limits: plan.limits,
      requiresPatch,
      tell
    })
    yield* progress.rest
    yield* progress.note(
      `${runId}: ${TaskReport.summary(result.end)}, after ${formatMillis(result.end.durationMs)}`
    )
    return result
  }).pipe(Effect.scoped, Effect.provide(AiSdkChatModel.layer()), Effect.ensuring(progress.rest))
  yield* tidy.end
  return result
})

const unreachable = new ProxyFailed({
  detail: "its socket does not lie on this host",
  remedy: "Run it where the engine is: a task's model is asked over a socket of this host"
})

/** The answer first, what changed after it, and whatever is wrong last. */
const tell = Effect.fnUntraced(function* (
  input: TaskInput,
  runId: string,
  result: Task.TaskResult,
  reserved: UserFiles.Output | undefined
) {
  const output = yield* Output.Output
  const { end, patch } = result
  const text = patch?.text
  if (text !== undefined && reserved !== undefined) yield* save(reserved, text)
  const file = text === undefined ? undefined : reserved?.path
  yield* output.exitWith(exitCode[TaskReport.exitOf(result)])
  if (input.output === "json") return yield* Output.json(TaskReport.json(result, runId, input.demo, file))
  if (end.text !== "") yield* output.stdout(`${end.text}\n`)
  if (text !== undefined && text !== "" && file === undefined) yield* output.stdout(`\n${text}`)
  const problem = TaskReport.problemOf(result)
  const told = TaskReport.changes(result, file)
  if (told !== problem && (!input.quiet || patch?.problem !== undefined)) yield* output.stderr(`· ${told}\n`)
  if (problem !== undefined) yield* output.stderr(`cogni-sandbox: ${runId}: ${problem}\n`)
})

const save = ({ path, write }: UserFiles.Output, text: string) =>
  Effect.mapError(
    write(text),
    ({ detail }) =>
      new Refusal({
        exit: "input",
        detail: `the patch cannot be written to ${path}: it ${detail}`,
        remedy: "What it says is in the workspace; name another file with --patch"
      })
  )

const sourceOf = ({ prompt, promptFile }: TaskInput): Effect.Effect<Prompt.PromptSource, Refusal> => {
  if (prompt !== undefined && promptFile !== undefined) {
    return Effect.fail(
      new Refusal({ exit: "usage", detail: "there are two prompts", remedy: "Leave one of them out" })
    )
  }
  if (prompt !== undefined) return Effect.succeed(Prompt.sourceOf(prompt))
  if (promptFile === undefined) {
    return Effect.fail(
      new Refusal({
        exit: "usage",
        detail: "there is nothing to do",
        remedy: 'Give a task (task "…", task -, --prompt-file FILE)'
      })
    )
  }
  return Effect.succeed(promptFile === "-" ? { _tag: "Stdin" } : { _tag: "File", path: promptFile })
}
