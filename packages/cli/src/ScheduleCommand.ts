/**
 * `cogni-sandbox schedule add|list|show|pause|resume|remove`: durable runs that Temporal starts at given times.
 *
 * The grant of a schedule is checked at each firing, by the worker that takes the run.
 */
import type { RunSchedule, RunScheduleState } from "@cogni/sandbox-temporal/RunSchedule"
import type { TemporalFailed } from "@cogni/sandbox-temporal/TemporalServer"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import { Effect, Schema } from "effect"
import { refusal, refuse } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import { Settings } from "./Settings.ts"
import { runOf } from "./SubmitCommand.ts"
import type * as TemporalFlags from "./TemporalFlags.ts"
import * as TemporalPackage from "./TemporalPackage.ts"
import * as TemporalSettings from "./TemporalSettings.ts"
import { columns, oneLine } from "./TerminalText.ts"

export type AddInput = Flags.Typed<typeof TemporalFlags.scheduleAdd> & {
  readonly name: string
  readonly prompt?: string | undefined
}

type Input = Flags.Typed<typeof TemporalFlags.schedules>

type Named = Input & { readonly name: string }

/** Connects to the Temporal server of the flags. */
const connected = Effect.fnUntraced(function* (
  input: Flags.Typed<typeof TemporalFlags.temporal>,
  isSearchable: boolean
) {
  const RunSchedules = yield* TemporalPackage.load(() => import("@cogni/sandbox-temporal/RunSchedules"))
  const server = yield* TemporalSettings.serverOf((yield* Settings).temporal, input)
  return yield* answered(RunSchedules.make({ ...server, isSearchable }))
})

const answered = <A, R>(effect: Effect.Effect<A, TemporalFailed, R>) =>
  Effect.mapError(effect, TemporalPackage.refusalOf)

export const add = Effect.fnUntraced(function* (input: AddInput) {
  const schedule = yield* scheduleOf(input)
  const schedules = yield* connected(input, !input.noSearch)
  yield* answered(schedules.add(schedule))
  yield* input.output === "json"
    ? Output.json({ name: schedule.name })
    : Output.note(`schedule ${schedule.name} is added`)
}, Effect.scoped)

export const list = Effect.fnUntraced(function* (input: Input) {
  const found = yield* answered((yield* connected(input, false)).list)
  if (input.output === "json") return yield* Output.json(found.map(toJson))
  if (found.length > 0) return yield* Output.lines(render(found))
  yield* Output.note("there are no schedules; add one with: cogni-sandbox schedule add")
}, Effect.scoped)

export const show = Effect.fnUntraced(function* (input: Named) {
  const found = yield* answered((yield* connected(input, false)).show(input.name))
  if (input.output === "json") return yield* Output.json({ ...toJson(found), schedule: found.schedule })
  yield* Output.lines(describe(found))
}, Effect.scoped)

const changed = (did: string, change: "pause" | "resume" | "remove") =>
  Effect.fnUntraced(function* (input: Named & { readonly note?: string | undefined }) {
    const schedules = yield* connected(input, false)
    yield* answered(schedules[change](input.name, input.note))
    yield* input.output === "json"
      ? Output.json({ name: input.name, [did]: true })
      : Output.note(`schedule ${oneLine(input.name)} is ${did}`)
  }, Effect.scoped)

export const pause = changed("paused", "pause")
export const resume = changed("resumed", "resume")
export const remove = changed("removed", "remove")

/** Returns the schedule that the flags ask for. */
const scheduleOf = Effect.fnUntraced(function* (input: AddInput) {
  const { catchUpSecondsMax, cron, everySeconds, jitterSecondsMax, name, overlap, timeZone } = input
  const { RunSchedule, defaults } = yield* TemporalPackage.load(
    () => import("@cogni/sandbox-temporal/RunSchedule")
  )
  const isCron = cron.length > 0
  if (isCron === (everySeconds !== undefined) || (!isCron && timeZone !== undefined))
    return yield* Effect.fromResult(
      refuse(
        "usage",
        "the times of a schedule are unclear",
        "Name either --cron, with a --time-zone, or --every"
      )
    )
  const { runId: _, ...run } = yield* runOf({ ...input, runId: "for-its-check" })
  const asked = {
    ...defaults,
    name,
    times: isCron ? { cron, ...Flags.given({ timeZone }) } : { everySeconds },
    overlap,
    ...Flags.given({ jitterSecondsMax, catchUpSecondsMax }),
    run
  }
  return yield* Schema.decodeUnknownEffect(Schema.toType(RunSchedule), { errors: "all" })(asked).pipe(
    Effect.mapError((error) =>
      refusal(
        "input",
        `the schedule is invalid: ${oneLine(problemsOf(error).slice(0, 5).join("; "))}`,
        "See cogni-sandbox schedule add --help"
      )
    )
  )
})

const toJson = ({ nextAt, recent, ...state }: RunScheduleState) => ({
  name: state.name,
  grantId: state.grantId,
  graphId: state.graphId,
  times: state.times,
  isPaused: state.isPaused,
  ...Flags.given({ note: state.note }),
  nextAt: nextAt.map((at) => at.toISOString()),
  recent: recent.map(({ runId, startedAt }) => ({ runId, startedAt: startedAt.toISOString() }))
})

const nextOf = ({ isPaused, nextAt }: RunScheduleState): string =>
  isPaused ? "paused" : (nextAt[0]?.toISOString() ?? "never")

/** Renders a table of schedules. */
export const render = (states: ReadonlyArray<RunScheduleState>): ReadonlyArray<string> =>
  columns([
    ["SCHEDULE", "GRAPH", "GRANT", "TIMES", "NEXT", "LAST RUN"],
    ...states.map((state) => [
      oneLine(state.name),
      oneLine(state.graphId),
      oneLine(state.grantId),
      oneLine(state.times),
      nextOf(state),
      oneLine(state.recent.at(-1)?.runId ?? "none")
    ])
  ])

/** Describes one schedule, without its prompt. */
export const describe = (
  state: RunScheduleState & { readonly schedule: RunSchedule }
): ReadonlyArray<string> => {
  const { graphId, name, note, recent, schedule, times } = state
  return [
    `${oneLine(name)}: ${oneLine(graphId)} with grant ${oneLine(state.grantId)}`,
    `  times ${oneLine(times)}, jitter ${schedule.jitterSecondsMax} s, overlap ${schedule.overlap}, catch-up ${schedule.catchUpSecondsMax} s`,
    `  next ${nextOf(state)}${note === undefined ? "" : `: ${oneLine(note)}`}`,
    ...recent.map(({ runId, startedAt }) => `  ${startedAt.toISOString()} ${oneLine(runId)}`)
  ]
}
