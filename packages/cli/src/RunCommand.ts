/**
 * `cogni-sandbox run`: one run from the command line.
 *
 * The output of a command streams through. An agent's answer is all that reaches standard output. Orphaned
 * resources are removed while the agent works and the engine is idle.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import type { RunEvent } from "@cogni/sandbox-core/RunEvent"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import type { Delivery } from "@cogni/sandbox-git-relay/DeliveryRecord"
import * as AgentOutput from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import type { InClone } from "@cogni/sandbox-graph-provider/RepositoryUse"
import type { RunCost } from "@cogni/sandbox-ledger/RunCost"
import { Effect, Layer, Option, Schema, type Stdio } from "effect"
import * as Composition from "./Composition.ts"
import * as ConfiguredAgents from "./ConfiguredAgents.ts"
import * as Connections from "./Connections.ts"
import { exitCode } from "./ExitCode.ts"
import { type Refusal, refusal, RunFailed } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as HostThreads from "./HostThreads.ts"
import * as Output from "./Output.ts"
import * as Progress from "./Progress.ts"
import * as Prompt from "./Prompt.ts"
import { formatMillis } from "./Quantity.ts"
import * as Reaping from "./Reaping.ts"
import * as RelayReport from "./RelayReport.ts"
import * as RepoPlan from "./RepoPlan.ts"
import * as RepoRun from "./RepoRun.ts"
import * as RunLedger from "./RunLedger.ts"
import * as RunPlan from "./RunPlan.ts"
import * as RunReport from "./RunReport.ts"
import { Settings } from "./Settings.ts"
import * as TerminalApproval from "./TerminalApproval.ts"
import * as ThreadRun from "./ThreadRun.ts"
import * as TextTail from "./TextTail.ts"
import * as UserFiles from "./UserFiles.ts"

/** Characters of an agent's text that are kept in case its run fails. */
const textCharsMax = 256 * 1024

type RunInput = Flags.Typed<typeof Flags.run> & {
  readonly prompt?: string | undefined
  /** Words after `--`. */
  readonly command?: ReadonlyArray<string> | undefined
}

export const run = (input: RunInput) =>
  TerminalApproval.around(input.askTools, (approvals) => running(input, approvals))

const running = Effect.fnUntraced(function* (
  input: RunInput,
  approvals: Layer.Layer<never, never, Stdio.Stdio>
) {
  const settings = yield* Settings
  const runId = yield* runIdOf(input)
  const subject = yield* subjectOf(input)
  const plan = yield* traced(yield* Effect.fromResult(RunPlan.make(subject, runId, input, settings)))
  const repo = yield* Effect.fromResult(RepoPlan.make(input, runId))
  const thread = yield* Effect.fromResult(ThreadRun.make(input, subject))
  const user = Connections.operator(settings, { runId })
  const toolNames = [...input.tools, ...input.askTools]
  const wayOut = { ...plan, user, toolNames, proxy: input.proxy, auditBodies: input.auditBodies }
  const runner = (how: Composition.Plan) => Layer.provide(Composition.runner(settings, how), approvals)
  const shown = { ...input, live: subject._tag === "Command" && input.output === "text" }
  if (repo === undefined) {
    const allowedWorkspace = thread === undefined ? undefined : HostThreads.isThread(settings)
    const followed = Effect.fnUntraced(function* (asked: RunPlan.RunSubject) {
      const { spec } = yield* Effect.fromResult(RunPlan.make(asked, runId, input, settings))
      return yield* follow(spec, asked, shown, yield* Progress.make(input, plan.note))
    })
    const { ended, unrecorded } = yield* (
      thread === undefined
        ? Effect.map(followed(subject), (ended) => ({ ended, unrecorded: undefined }))
        : ThreadRun.around(thread, settings, runId, followed)
    ).pipe(Effect.provide(runner({ ...wayOut, allowedWorkspace })), Effect.scoped)
    yield* tell(input, plan, subject, ended)
    return unrecorded === undefined ? undefined : yield* unrecorded
  }
  const allowedWorkspace = [Composition.cloneWorkspace(settings, runId)]
  const ended = yield* Effect.gen(function* () {
    const progress = yield* Progress.make(input, plan.note)
    const patch = yield* UserFiles.reserve("--patch", repo.patch, undefined)
    yield* progress.now("cloning")
    let kept: Delivery | undefined
    const inClone = RepoRun.inClone(repo.request, repo.patch, progress, (delivery) => {
      kept = delivery
    })
    const ended = yield* follow(plan.spec, subject, shown, progress, inClone).pipe(
      Effect.catchTag("RunFailed", ({ error, textSoFar }) =>
        Effect.suspend(() => Effect.fail(new RunFailed({ error, textSoFar, delivery: kept })))
      )
    )
    const { delivery } = ended
    if (delivery === undefined) return ended
    yield* RepoRun.settle(delivery, patch)
    if (delivery._tag !== "Failed") yield* progress.note(RelayReport.describe(delivery, repo.patch))
    return ended
  }).pipe(
    Effect.provide(
      Layer.provideMerge(Composition.relay(settings, { user }), runner({ ...wayOut, allowedWorkspace }))
    ),
    Effect.scoped
  )
  yield* tell(input, plan, subject, ended)
})

/** Reports a run: its answer first, then any problem. */
const tell = Effect.fnUntraced(function* (
  input: RunInput,
  plan: RunPlan.RunPlan,
  subject: RunPlan.RunSubject,
  ended: AgentRun.AgentRunEnd<Delivery | undefined> & { readonly cost: RunCost | undefined }
) {
  const { cost, delivery, result } = ended
  const demo = plan.wayOut._tag === "Demo"
  const output = yield* Output.Output
  const verdict = subject._tag === "Prompt" ? RunReport.verdictOf(ended) : undefined
  const own = verdict?.exitCode ?? result.exitCode
  const failed = delivery?._tag === "Failed" ? delivery.error : undefined
  yield* output.exitWith(failed === undefined || own !== 0 ? own : exitCode[RelayReport.exitOf(failed)])
  if (input.output === "json") {
    const report =
      subject._tag === "Prompt" && verdict !== undefined
        ? RunReport.agentJson(subject.agent, result, verdict, { demo, cost })
        : RunReport.commandJson(result, { demo, cost })
    return yield* Output.json(delivery === undefined ? report : RelayReport.withDelivery(report, delivery))
  }
  if (verdict?.answer !== undefined) {
    yield* output.stdout(`${verdict.answer.text}\n`)
  } else if (verdict?.problem !== undefined) {
    yield* output.stderr(RunReport.spoken(verdict.problem.textSoFar))
    yield* output.stderr(`cogni-sandbox: ${result.runId}: ${verdict.problem.message}\n`)
  }
  if (failed !== undefined)
    yield* output.stderr(`cogni-sandbox: ${RelayReport.problem(failed, result.runId, input.patch)}\n`)
})

/** Returns the ID from the flags, or generates one. */
export const runIdOf = Effect.fnUntraced(function* ({ runId }: { readonly runId?: string | undefined }) {
  if (runId === undefined) return yield* RunId.generate
  return Schema.is(RunId.RunId)(runId)
    ? runId
    : yield* refusal(
        "input",
        `--run-id ${JSON.stringify(runId)} is not a valid run ID`,
        "Write 8 to 48 lower-case letters, digits and inner hyphens, such as run-4f7k2m9q0x1z, or leave it out"
      )
})

/** Adds the trace of the command to the identity of the run, if the command is traced. */
const traced = Effect.fnUntraced(function* (plan: RunPlan.RunPlan) {
  const span = yield* Effect.option(Effect.currentSpan)
  const { llm } = plan.spec
  if (Option.isNone(span) || llm === undefined) return plan
  const identity = { ...llm.identity, existingTraceId: span.value.traceId }
  return { ...plan, spec: { ...plan.spec, llm: { ...llm, identity } } }
})

const subjectOf = Effect.fnUntraced(function* (
  input: RunInput
): Effect.fn.Return<RunPlan.RunSubject, Refusal, Settings | Stdio.Stdio> {
  const source = yield* Effect.fromResult(Prompt.sourceOf(input))
  if (input.command !== undefined) {
    const [program, ...rest] = input.command
    if (source !== undefined) {
      return yield* refusal(
        "usage",
        "there is a prompt and a command",
        'Either run "prompt", or run -- CMD ARG…'
      )
    }
    return program === undefined
      ? yield* refusal("usage", "no command follows --", "Name one: run -- CMD ARG…")
      : { _tag: "Command", argv: [program, ...rest] }
  }
  if (source === undefined) {
    return yield* refusal(
      "usage",
      "there is nothing to run",
      'Give a prompt (run "…", run -, --prompt-file FILE), or a command: run -- CMD ARG…'
    )
  }
  const registry = yield* ConfiguredAgents.registry(yield* Settings)
  const agent = yield* registry
    .get(input.agent)
    .pipe(Effect.mapError(({ message }) => refusal("notFound", message, "Choose one with --agent")))
  return { _tag: "Prompt", agent, prompt: yield* Prompt.read(source, input.workspace) }
})

/** Executes a run and shows its progress; `live` passes its output through. */
export const follow = Effect.fnUntraced(function* <D = undefined, E = never, R = never>(
  spec: SandboxSpecInput,
  subject: RunPlan.RunSubject,
  { live }: { readonly live: boolean },
  progress: Progress.Progress,
  inClone?: InClone<D, E, R>
) {
  const tidy = yield* Reaping.inBackground
  const pass = yield* passThrough
  const rest = Effect.andThen(progress.rest, pass.end)
  let sealedMs = 0
  let cost: RunCost | undefined
  const see = (event: RunEvent) => {
    switch (event._tag) {
      case "RunStarted":
        return progress.now(`${event.runId}: preparing the sandbox`)
      case "PhaseEnded":
        if (event.phase === "create" || event.phase === "start") sealedMs += event.durationMs
        return event.phase !== "entrypoint"
          ? Effect.void
          : live
            ? Effect.andThen(progress.rest, progress.note(`sandbox ready in ${formatMillis(sealedMs)}`))
            : progress.now(`sandbox ready in ${formatMillis(sealedMs)}; the agent is working`)
      case "PostureVerified":
        return tidy.begin
      case "ApprovalRequested":
        return progress.now(TerminalApproval.waiting)
      case "ApprovalDecided":
        return Effect.andThen(
          progress.note(TerminalApproval.ended(event.approval)),
          progress.now("the agent is working")
        )
      case "ExfiltrationSuspected":
      case "BudgetExhausted":
      case "SubagentShareSpent":
        return progress.note(`warning: ${RunReport.warning(event)}`)
      case "OutputReceived":
        return live ? pass.take(event.channel, event.bytes) : Effect.void
      case "RunEnded":
        return RunLedger.costOf(event.result.runId).pipe(
          Effect.tap((found) => Effect.sync(() => (cost = found))),
          Effect.flatMap((found) =>
            Effect.andThen(rest, progress.note(RunReport.summary(event.result, found)))
          )
        )
    }
  }
  if (inClone === undefined) yield* progress.now("preparing a sandbox")
  const reader = subject._tag === "Prompt" ? subject.agent.reader : AgentOutput.unread
  const spoken = TextTail.make(textCharsMax)
  const ended = yield* AgentRun.live(
    spec,
    reader,
    (event, said) => {
      for (const event of said) if (event.type === "text_delta") spoken.add(event.delta)
      return see(event)
    },
    inClone
  ).pipe(
    Effect.ensuring(rest),
    Effect.tapError((error) =>
      error instanceof SandboxError && error.runId !== undefined
        ? usedBefore(error.runId, progress)
        : Effect.void
    ),
    Effect.mapError((error) =>
      error instanceof SandboxError ? new RunFailed({ error, textSoFar: spoken.text() }) : error
    )
  )
  yield* tidy.end
  return { ...ended, cost }
})

/** Says what a run used before it failed. */
const usedBefore = (runId: string, progress: Progress.Progress) =>
  Effect.flatMap(RunLedger.costOf(runId), (cost) => {
    const used = RunReport.used(runId, cost)
    return used === undefined ? Effect.void : progress.note(used)
  })

const passThrough = Effect.gen(function* () {
  const output = yield* Output.Output
  let open = false
  return {
    take: (channel: "stdout" | "stderr", bytes: Uint8Array) => {
      open = bytes.at(-1) !== 0x0a
      return channel === "stdout" ? output.stdout(bytes) : output.stderr(bytes)
    },
    /** Ends an unfinished line on a terminal, so that our next output begins on its own line. */
    end: Effect.suspend(() => {
      const isCut = open && output.stdoutIsTerminal && output.stderrIsTerminal
      open = false
      return isCut ? output.stderr("\n") : Effect.void
    })
  }
})
