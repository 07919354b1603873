/**
 * `cogni-sandbox run`: one run from the command line.
 *
 * Output of a command streams through as it comes; of an agent, only its answer reaches standard output. What dead
 * owners have left is removed while the agent works, when the engine has nothing else to do.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import type { RunEvent } from "@cogni/sandbox-core/RunEvent"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import { describeExhaustion } from "@cogni/sandbox-core/SandboxError"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { Delivery } from "@cogni/sandbox-git-relay/RelayRun"
import { AgentRegistry } from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { Effect, Layer, Schema, Stream } from "effect"
import * as Composition from "./Composition.ts"
import { exitCode } from "./ExitCode.ts"
import { Refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import * as Progress from "./Progress.ts"
import * as Prompt from "./Prompt.ts"
import { formatMillis } from "./Quantity.ts"
import * as Reaping from "./Reaping.ts"
import * as RelayReport from "./RelayReport.ts"
import * as RepoPlan from "./RepoPlan.ts"
import * as RepoRun from "./RepoRun.ts"
import * as RunPlan from "./RunPlan.ts"
import * as RunReport from "./RunReport.ts"
import { Settings } from "./Settings.ts"

export interface RunInput extends RunPlan.RunFlags, RepoPlan.RepoFlags {
  readonly agent: string
  /** One of the agent's characters. */
  readonly personality?: string | undefined
  readonly prompt?: Prompt.PromptSource | undefined
  /** What came after `--`. */
  readonly command?: ReadonlyArray<string> | undefined
  readonly output: Output.OutputFormat
  readonly quiet: boolean
}

export const run = Effect.fnUntraced(function* (input: RunInput) {
  const settings = yield* Settings
  const runId = yield* runIdOf(input)
  const subject = yield* subjectOf(input, runId)
  const plan = yield* Effect.fromResult(RunPlan.make(subject, input, settings))
  const repo = yield* Effect.fromResult(RepoPlan.make(input, runId))
  const live = subject._tag === "Command" && input.output === "text"
  const prepared = Effect.gen(function* () {
    const progress = yield* Progress.make({ quiet: input.quiet })
    if (plan.note !== undefined) yield* progress.note(plan.note)
    return progress
  })
  if (repo === undefined) {
    const result = yield* Effect.flatMap(prepared, (progress) => follow(plan, progress, live)).pipe(
      Effect.provide(Composition.runner(settings, plan)),
      Effect.scoped
    )
    return yield* tell(input, plan, subject, result)
  }
  const succeeded = (result: RunResult) =>
    subject._tag === "Command" ? result.exitCode === 0 : RunReport.judge(subject.agent, result).exitCode === 0
  const allowedWorkspace = Composition.cloneWorkspace(settings, runId)
  const { delivery, result } = yield* Effect.gen(function* () {
    const progress = yield* prepared
    const both = yield* RepoRun.live(
      plan,
      repo,
      progress,
      (within, began) => follow(within, progress, live, began),
      succeeded
    )
    yield* progress.rest
    if (both.delivery._tag !== "Failed") yield* progress.note(RelayReport.describe(both.delivery, repo.patch))
    return both
  }).pipe(
    Effect.provide(
      Layer.provideMerge(
        Composition.relay(settings),
        Composition.runner(settings, { ...plan, allowedWorkspace })
      )
    ),
    Effect.scoped
  )
  yield* tell(input, plan, subject, result, delivery)
})

/** What the run came to: its answer first, and whatever is wrong after it. */
const tell = Effect.fnUntraced(function* (
  input: RunInput,
  plan: RunPlan.RunPlan,
  subject: RunPlan.RunSubject,
  result: RunResult,
  delivery?: Delivery
) {
  const demo = plan.wayOut._tag === "Demo"
  const output = yield* Output.Output
  const verdict = subject._tag === "Prompt" ? RunReport.judge(subject.agent, result) : undefined
  const own = verdict?.exitCode ?? result.exitCode
  const failed = delivery?._tag === "Failed" ? delivery.error : undefined
  yield* output.exitWith(failed === undefined || own !== 0 ? own : exitCode[RelayReport.exitOf(failed)])
  if (input.output === "json") {
    const report =
      subject._tag === "Prompt"
        ? RunReport.agentJson(subject.agent, result, verdict!, demo)
        : RunReport.commandJson(result, demo)
    return yield* Output.json(delivery === undefined ? report : RelayReport.withDelivery(report, delivery))
  }
  if (verdict?.answer !== undefined) {
    const { text } = verdict.answer
    yield* output.stdout(`${text}\n`)
  } else if (verdict?.problem !== undefined) {
    yield* output.stderr(`cogni-sandbox: ${result.runId}: ${verdict.problem.message}\n`)
  }
  if (failed !== undefined)
    yield* output.stderr(`cogni-sandbox: ${RelayReport.problem(failed, result.runId, input.patch)}\n`)
})

/** The one that was typed, or one of its own. */
export const runIdOf = Effect.fnUntraced(function* ({ runId }: { readonly runId?: string | undefined }) {
  if (runId === undefined) return yield* RunId.generate
  return Schema.is(RunId.RunId)(runId)
    ? runId
    : yield* new Refusal({
        exit: "input",
        detail: `--run-id ${JSON.stringify(runId)} is not a run ID`,
        remedy:
          "Write 8 to 48 lower-case letters, digits and inner hyphens, such as run-4f7k2m9q0x1z, or leave it out"
      })
})

const subjectOf = Effect.fnUntraced(function* (input: RunInput, runId: RunId.RunId) {
  if (input.command !== undefined) {
    const [program, ...rest] = input.command
    if (input.prompt !== undefined) {
      return yield* new Refusal({
        exit: "usage",
        detail: "there is a prompt and a command",
        remedy: 'Either run "prompt", or run -- CMD ARG…'
      })
    }
    if (program === undefined) {
      return yield* new Refusal({
        exit: "usage",
        detail: "no command follows --",
        remedy: "Name one: run -- CMD ARG…"
      })
    }
    return { _tag: "Command", argv: [program, ...rest] } as const
  }
  if (input.prompt === undefined) {
    return yield* new Refusal({
      exit: "usage",
      detail: "there is nothing to run",
      remedy: 'Give a prompt (run "…", run -, --prompt-file FILE), or seal a command: run -- CMD ARG…'
    })
  }
  const registry = yield* AgentRegistry
  const agent = yield* registry
    .get(input.agent)
    .pipe(
      Effect.mapError(
        ({ message }) => new Refusal({ exit: "notFound", detail: message, remedy: "Choose one with --agent" })
      )
    )
  return {
    _tag: "Prompt",
    agent,
    prompt: yield* Prompt.read(input.prompt, input.workspace),
    runId,
    hasRepository: input.repo !== undefined,
    personality: input.personality
  } as const
})

/** Live a run and show what is seen of it; `live` passes the agent's output through. */
export const follow = Effect.fnUntraced(function* (
  plan: RunPlan.RunPlan,
  progress: Progress.Progress,
  live: boolean,
  /** Of whoever must know that an agent works now. */
  began: Effect.Effect<void> = Effect.void
) {
  const runner = yield* SandboxRunner
  const tidy = yield* Reaping.inBackground
  const pass = yield* passThrough
  let result: RunResult | undefined
  let sealedMs = 0
  yield* progress.now("preparing a sandbox")
  yield* Stream.runForEach(runner.stream(plan.spec), (event: RunEvent) => {
    switch (event._tag) {
      case "RunStarted":
        return progress.now(`${event.runId}: preparing the sandbox`)
      case "PhaseEnded":
        if (event.phase === "create" || event.phase === "start") sealedMs += event.durationMs
        return event.phase !== "entrypoint"
          ? Effect.void
          : live
            ? Effect.andThen(progress.rest, progress.note(`sealed in ${formatMillis(sealedMs)}`))
            : progress.now(`sealed in ${formatMillis(sealedMs)}; the agent works`)
      case "PostureVerified":
        return Effect.andThen(began, tidy.begin)
      case "ExfiltrationSuspected":
        return progress.note(
          `warning: a planted secret was seen in the ${event.evidence.channel.replace("_", " ")}: ${event.evidence.canary} (${event.evidence.encoding})`
        )
      case "BudgetExhausted":
        return progress.note(`warning: ${describeExhaustion(event.exhaustion)}`)
      case "OutputReceived":
        return live ? pass.take(event.channel, event.bytes) : Effect.void
      case "RunEnded":
        result = event.result
        return Effect.void
    }
  }).pipe(Effect.ensuring(Effect.andThen(progress.rest, pass.end)))
  yield* tidy.end
  if (result === undefined) return yield* Effect.die(new Error("a run ended without a result"))
  const { durationMs, exitCode, llm, runId } = result
  const calls =
    llm === undefined ? "" : `, ${llm.callsTotal} model ${llm.callsTotal === 1 ? "call" : "calls"}`
  yield* progress.note(`${runId}: exit code ${exitCode} after ${formatMillis(durationMs)}${calls}`)
  return result
})

const passThrough = Effect.gen(function* () {
  const output = yield* Output.Output
  let open = false
  return {
    take: (channel: "stdout" | "stderr", bytes: Uint8Array) => {
      open = bytes.at(-1) !== 0x0a
      return channel === "stdout" ? output.stdout(bytes) : output.stderr(bytes)
    },
    /** On a terminal, what we say next begins on a line of its own. */
    end: Effect.suspend(() =>
      open && output.stdoutIsTerminal && output.stderrIsTerminal ? output.stderr("\n") : Effect.void
    )
  }
})
