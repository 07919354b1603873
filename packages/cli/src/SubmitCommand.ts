/**
 * `cogni-sandbox submit`: submits a durable run to Temporal, and waits for its end on request.
 *
 * Needs no engine, no database and no token: a grant is named by its ID, and hosts have its token.
 */
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { DurableOutcome } from "@cogni/sandbox-temporal/DurableRun"
import { Effect, Schema, type Stdio } from "effect"
import * as CostWords from "./CostWords.ts"
import * as ExitCode from "./ExitCode.ts"
import { type Refusal, refusal, refuse } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import * as Prompt from "./Prompt.ts"
import * as RunPlan from "./RunPlan.ts"
import { Settings } from "./Settings.ts"
import type * as TemporalFlags from "./TemporalFlags.ts"
import * as TemporalPackage from "./TemporalPackage.ts"
import * as TemporalSettings from "./TemporalSettings.ts"
import { oneLine } from "./TerminalText.ts"
import * as UserFiles from "./UserFiles.ts"

type SubmitInput = Flags.Typed<typeof TemporalFlags.submit> & { readonly prompt?: string | undefined }

/** Time after which a run that nothing takes is reported. */
const untakenSeconds = 10

/** Largest file of a request. */
const requestFileBytesMax = 1024 * 1024

export const submit = Effect.fnUntraced(function* (input: SubmitInput) {
  const DurableRuns = yield* TemporalPackage.load(() => import("@cogni/sandbox-temporal/DurableRuns"))
  const run = yield* runOf(input)
  const { noSearch, output, wait } = input
  const server = yield* TemporalSettings.serverOf((yield* Settings).temporal, input)
  const runs = yield* DurableRuns.make({ ...server, isSearchable: !noSearch }).pipe(
    Effect.mapError(TemporalPackage.refusalOf)
  )
  yield* runs.submit(run).pipe(Effect.mapError(TemporalPackage.refusalOf))
  if (!wait) return yield* output === "json" ? Output.json({ runId: run.runId }) : Output.lines([run.runId])
  yield* Output.note(`submitted ${run.runId}`)
  yield* Effect.forkScoped(noteIfUntaken(runs.hasWorkers, server.taskQueue))
  const outcome = yield* runs.wait(run.runId).pipe(Effect.mapError(TemporalPackage.refusalOf))
  yield* (yield* Output.Output).exitWith(ExitCode.exitCode[exitOf(outcome)])
  yield* output === "json" ? Output.json(outcome) : Output.lines(render(outcome))
}, Effect.scoped)

/** Says once that nothing can take the run, if that is so after some time. */
export const noteIfUntaken = Effect.fnUntraced(function* (
  hasWorkers: Effect.Effect<boolean, unknown>,
  taskQueue: string
) {
  yield* Effect.sleep(`${untakenSeconds} seconds`)
  if (yield* Effect.orElseSucceed(hasWorkers, () => true)) return
  yield* Output.note(
    `no worker polls queue ${oneLine(taskQueue)}. Start one with cogni-sandbox worker, or correct --queue or --namespace`
  )
})

/** Returns the run that the flags of `submit`, or of `schedule add`, ask for. */
export const runOf = Effect.fnUntraced(function* (input: Omit<SubmitInput, "wait">) {
  const { attempts, cores, grant, labels, memoryBytes, placementSecondsMax, runId, wallSecondsMax } = input
  const { DurableRun, defaults } = yield* TemporalPackage.load(
    () => import("@cogni/sandbox-temporal/DurableRun")
  )
  const asked = {
    ...defaults,
    runId: runId ?? (yield* RunId.generate),
    grantId: grant,
    request: yield* requestOf(input),
    needs: { ...Flags.given({ cores, memoryBytes }), ...(labels.length === 0 ? {} : { labels }) },
    ...Flags.given({ attemptsMax: attempts, wallSecondsMax, placementSecondsMax })
  }
  return yield* Schema.decodeUnknownEffect(DurableRun, { errors: "all", onExcessProperty: "error" })(
    asked
  ).pipe(
    Effect.mapError((error) =>
      refusal(
        "input",
        `the run is invalid: ${oneLine(problemsOf(error).slice(0, 5).join("; "))}`,
        "See cogni-sandbox submit --help"
      )
    )
  )
})

const requestOf = Effect.fnUntraced(function* (
  input: Omit<SubmitInput, "wait">
): Effect.fn.Return<unknown, Refusal, Stdio.Stdio> {
  const { base, graph, model, pr, repo, request, runtimeSecondsMax } = input
  const source = yield* Effect.fromResult(Prompt.sourceOf(input))
  if (request !== undefined) {
    return source === undefined
      ? yield* requestIn(request)
      : yield* Effect.fromResult(
          refuse("usage", "there is a prompt and a --request", "Leave one of them out")
        )
  }
  if (source === undefined) {
    return yield* refusal(
      "usage",
      "there is no prompt",
      'Write one, such as cogni-sandbox submit "Fix the test"'
    )
  }
  if (repo === undefined && (pr || base !== undefined)) {
    const flag = pr ? "--pr" : "--base"
    return yield* refusal("usage", `${flag} has no effect without --repo`, "Name the repository with --repo")
  }
  const budget = yield* Effect.fromResult(RunPlan.budgetOf(input, "submit"))
  const repository =
    repo === undefined
      ? undefined
      : { url: repo, ...Flags.given({ baseBranch: base }), ...(pr ? { pullRequest: true } : {}) }
  return {
    graphId: graph,
    messages: [{ role: "user", content: yield* Prompt.read(source) }],
    ...Flags.given({ model, repository, runtimeSecondsMax, budget })
  }
})

const requestIn = Effect.fnUntraced(function* (path: string) {
  const { bytes } = yield* UserFiles.read(path, "the request", { bytesMax: requestFileBytesMax })
  return yield* Effect.try({
    try: (): unknown => JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)),
    catch: () => refusal("input", `${oneLine(path)} is not JSON`, "Write the body of POST /api/v1/runs")
  })
})

/** The exit code for the end of a run on another host. */
export const exitOf = ({ reason = "", status }: DurableOutcome): ExitCode.ExitName => {
  switch (status) {
    case "succeeded":
      return "success"
    case "failed":
      return reason === "NotDelivered" ? "undelivered" : (ExitCode.ofReasonNamed(reason) ?? "fault")
    case "refused":
      return reason === "NoRoom" ? "unavailable" : (ExitCode.ofReasonNamed(reason) ?? "input")
    case "lost":
      return "unavailable"
    case "stopped":
      return reason === "WallClockExceeded" ? "timeout" : "interrupted"
  }
}

/** Describes the end of a run, one line for each attempt. Texts come from hosts. */
export const render = ({
  attempts,
  message,
  reason,
  runId,
  status
}: DurableOutcome): ReadonlyArray<string> => [
  `${runId} ${status}${reason === undefined ? "" : `: ${oneLine(reason)}`}${message === undefined ? "" : `, ${oneLine(message)}`}`,
  ...attempts.map(({ branch, delivery, host, pullRequestUrl, runId: id, spend, status: its }) => {
    const cost = `${CostWords.usd(spend.calls === 0 && spend.isFinal ? 0 : spend.costUsd)}${spend.isFinal || spend.costUsd === undefined ? "" : " or more"}`
    const delivered =
      delivery === undefined ? "" : `, ${oneLine(delivery)} ${oneLine(pullRequestUrl ?? branch ?? "")}`
    return `  ${oneLine(id)} on ${oneLine(host)}: ${oneLine(its)}, cost ${cost}${delivered}`
  })
]
