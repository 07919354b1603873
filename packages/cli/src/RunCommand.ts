/**
 * `cogni-sandbox run`: one run from the command line.
 *
 * Output of a command streams through as it comes; of an agent, only its answer reaches standard output. What dead
 * owners have left is removed while the agent works, when the engine has nothing else to do.
 */
import type { RunEvent } from "@cogni/sandbox-core/RunEvent"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import { describeExhaustion } from "@cogni/sandbox-core/SandboxError"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { AgentRegistry } from "@cogni/sandbox-graph-provider/AgentRegistry"
import { Effect, Fiber, Latch, Stream } from "effect"
import * as Composition from "./Composition.ts"
import { Refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import * as Progress from "./Progress.ts"
import * as Prompt from "./Prompt.ts"
import { formatMillis } from "./Quantity.ts"
import * as RunPlan from "./RunPlan.ts"
import * as RunReport from "./RunReport.ts"
import { Settings } from "./Settings.ts"
import { makeDecoder, visible } from "./TerminalText.ts"

/** How long a command waits at its end for the removal of others' leftovers. @category constants */
export const reapSecondsMax = 5

/** @category models */
export interface RunInput extends RunPlan.RunFlags {
  readonly agent: string
  readonly prompt?: Prompt.PromptSource | undefined
  /** What came after `--`. */
  readonly command?: ReadonlyArray<string> | undefined
  readonly output: Output.OutputFormat
  readonly quiet: boolean
}

/** @category constructors */
export const run = Effect.fnUntraced(function* (input: RunInput) {
  const settings = yield* Settings
  const subject = yield* subjectOf(input)
  const plan = yield* Effect.fromResult(RunPlan.make(subject, input, settings))
  const result = yield* Effect.gen(function* () {
    const progress = yield* Progress.make({ quiet: input.quiet })
    if (plan.note !== undefined) yield* progress.note(plan.note)
    const live = subject._tag === "Command" && input.output === "text"
    return yield* follow(plan, progress, live)
  }).pipe(Effect.provide(Composition.runner(settings, plan)), Effect.scoped)

  const demo = plan.wayOut._tag === "Demo"
  const output = yield* Output.Output
  if (subject._tag === "Command") {
    yield* output.exitWith(result.exitCode)
    if (input.output === "json") yield* Output.json(RunReport.commandJson(result, demo))
    return
  }
  const verdict = RunReport.judge(subject.agent, result)
  yield* output.exitWith(verdict.exitCode)
  if (input.output === "json")
    return yield* Output.json(RunReport.agentJson(subject.agent, result, verdict, demo))
  if (verdict.answer !== undefined) {
    const { text } = verdict.answer
    return yield* output.stdout(`${output.stdoutIsTerminal ? visible(text) : text}\n`)
  }
  if (verdict.problem !== undefined)
    yield* output.stderr(`cogni-sandbox: ${result.runId}: ${verdict.problem.message}\n`)
})

const subjectOf = Effect.fnUntraced(function* (input: RunInput) {
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
  return { _tag: "Prompt", agent, prompt: yield* Prompt.read(input.prompt) } as const
})

/**
 * Live a run and show what is seen of it; `live` passes the agent's output through.
 *
 * @category combinators
 */
export const follow = Effect.fnUntraced(function* (
  plan: RunPlan.RunPlan,
  progress: Progress.Progress,
  live: boolean
) {
  const runner = yield* SandboxRunner
  const tidy = yield* reapInBackground
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
        return tidy.begin
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

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const passThrough = Effect.gen(function* () {
  const output = yield* Output.Output
  const decoders = { stdout: makeDecoder(), stderr: makeDecoder() }
  let open = false
  return {
    take: (channel: "stdout" | "stderr", bytes: Uint8Array) => {
      open = bytes.at(-1) !== 0x0a
      return channel === "stdout"
        ? output.stdout(output.stdoutIsTerminal ? decoders.stdout(bytes) : bytes)
        : output.stderr(output.stderrIsTerminal ? decoders.stderr(bytes) : bytes)
    },
    /** On a terminal, what we say next begins on a line of its own. */
    end: Effect.suspend(() =>
      open && output.stdoutIsTerminal && output.stderrIsTerminal ? output.stderr("\n") : Effect.void
    )
  }
})

/** Nothing of it can fail a run, or keep it from ending. */
const reapInBackground = Effect.gen(function* () {
  const settings = yield* Settings
  const reaper = yield* DockerReaper
  const latch = yield* Latch.make()
  const both = Effect.all([reaper.reap, FileRunStore.make({ directory: settings.stateDirectory }).reap], {
    concurrency: 2,
    mode: "result"
  })
  const fiber = yield* latch.await.pipe(Effect.andThen(both), Effect.ignore, Effect.forkScoped)
  return {
    begin: Effect.asVoid(latch.open),
    end: latch.open.pipe(
      Effect.andThen(Fiber.await(fiber)),
      Effect.timeoutOption(`${reapSecondsMax} seconds`),
      Effect.asVoid
    )
  }
})
