/**
 * Schedules of durable runs over the client of Temporal's SDK. Loaded only when it is used, because the SDK may not be
 * installed.
 *
 * Other programs may have schedules in the namespace. Only those that start our workflow are seen or changed.
 */
import {
  Client,
  ScheduleAlreadyRunning,
  type ScheduleClient,
  type ScheduleDescription,
  type ScheduleHandle,
  ScheduleNotFoundError,
  ScheduleOverlapPolicy,
  type ScheduleSummary
} from "@temporalio/client"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect, Option, Schema } from "effect"
import { RunSchedule, type RunScheduleState } from "../RunSchedule.ts"
import { type RunsOptions, TemporalFailed } from "../TemporalServer.ts"
import * as Answering from "./Answering.ts"
import type { ScheduledInput } from "./ScheduledAgentRun.ts"
import { firingSecondsMax } from "./RunDeadline.ts"
import { runIdOf } from "./ScheduledRunId.ts"
import { attributesMissing, attributesOf, connect, failed, isInvalid, keysOf } from "./TemporalRuns.ts"

/** Name of the workflow. */
const workflowType = "scheduledAgentRun"

const policies = {
  skip: ScheduleOverlapPolicy.SKIP,
  queue: ScheduleOverlapPolicy.BUFFER_ONE,
  cancel: ScheduleOverlapPolicy.CANCEL_OTHER,
  allow: ScheduleOverlapPolicy.ALLOW_ALL
} as const satisfies Record<RunSchedule["overlap"], ScheduleOverlapPolicy>

const encode = Schema.encodeSync(Schema.toCodecJson(RunSchedule))

/** Length of the random part of run IDs. With the longest name, there is no room for more. */
const tagChars = 6

/** A note at the schedule, because a list has no inputs. */
const Memo = Schema.Struct({
  grantId: Schema.String,
  graphId: Schema.String,
  times: Schema.String,
  tag: Schema.optionalKey(Schema.String)
})

const decodeMemo = Schema.decodeUnknownOption(Memo)

const decodeKept = Schema.decodeUnknownEffect(Schema.Struct({ schedule: RunSchedule }))

export const make = Effect.fnUntraced(function* (options: RunsOptions) {
  const connection = yield* connect(options)
  return over(new Client({ connection, namespace: options.namespace }).schedule, options)
})

/** The schedules over a client. Each call ends in seconds. */
export const over = (client: ScheduleClient, options: RunsOptions) => {
  const { namespace } = options
  const attempt = <A>(name: string, what: string, task: () => Promise<A>) =>
    Answering.within(client, what, task, (error) =>
      error instanceof ScheduleNotFoundError ? notFound(name) : failed(what, namespace, error)
    )

  /** Returns a schedule of ours. */
  const found = Effect.fnUntraced(function* (name: string) {
    const handle = client.getHandle(name)
    const description = yield* attempt(name, "describe the schedule", () => handle.describe())
    return isOurs(description) ? { handle, description } : yield* notFound(name)
  })

  const change = (name: string, what: string, use: (handle: ScheduleHandle) => Promise<void>) =>
    Effect.flatMap(found(name), ({ handle }) => attempt(name, what, () => use(handle)))

  return {
    add: Effect.fn("RunSchedules.add")(function* (schedule: RunSchedule) {
      // The random part of a run ID: otherwise another grant could take the ID of a firing before it is due.
      const tag = (yield* RunId.generate).slice(-tagChars)
      yield* Answering.within(
        client,
        "add the schedule",
        () => client.create(createOf(schedule, tag, options)),
        (error) => addFailed(schedule, options, error)
      )
    }),
    list: Answering.within(
      client,
      "list the schedules",
      async () => {
        const found: Array<RunScheduleState> = []
        for await (const summary of client.list())
          if (isOurs(summary)) found.push(...Option.toArray(stateOf(summary)))
        return found
      },
      (error) => failed("list the schedules", namespace, error)
    ).pipe(Effect.withSpan("RunSchedules.list")),
    show: Effect.fn("RunSchedules.show")(function* (name: string) {
      const { description } = yield* found(name)
      const { schedule } = yield* decodeKept(description.action.args?.[0]).pipe(
        Effect.mapError(() => outdated(name))
      )
      const state = Option.getOrUndefined(stateOf(description))
      return state === undefined ? yield* outdated(name) : { ...state, schedule }
    }),
    pause: (name: string, note?: string) =>
      Effect.flatMap(found(name), ({ description: { state }, handle }) =>
        // The SDK would write a note of its own.
        attempt(name, "pause the schedule", () =>
          handle.pause(note || (state.paused && noteIn(state)) || noNote)
        )
      ).pipe(Effect.withSpan("RunSchedules.pause")),
    resume: (name: string) =>
      change(name, "resume the schedule", (handle) => handle.unpause()).pipe(
        Effect.withSpan("RunSchedules.resume")
      ),
    remove: (name: string) =>
      change(name, "remove the schedule", (handle) => handle.delete()).pipe(
        Effect.withSpan("RunSchedules.remove")
      )
  }
}

const isOurs = ({ action }: Pick<ScheduleSummary | ScheduleDescription, "action">): boolean =>
  action?.workflowType === workflowType

const createOf = (schedule: RunSchedule, tag: string, { isSearchable, taskQueue }: RunsOptions) => {
  const { catchUpSecondsMax, jitterSecondsMax, name, overlap, times } = schedule
  const attributes = attributesOf(schedule.run)
  const input: ScheduledInput = {
    schedule: encode(schedule) as unknown as RunSchedule,
    tag,
    isSearchable,
    attributes
  }
  const memo: typeof Memo.Type = {
    grantId: schedule.run.grantId,
    graphId: schedule.run.request.graphId,
    times: timesOf(times),
    tag
  }
  return {
    scheduleId: name,
    spec: {
      ...("cron" in times
        ? {
            cronExpressions: [...times.cron],
            ...(times.timeZone === undefined ? {} : { timezone: times.timeZone })
          }
        : { intervals: [{ every: times.everySeconds * 1000 }] }),
      jitter: jitterSecondsMax * 1000
    },
    action: {
      type: "startWorkflow",
      workflowType,
      workflowId: name,
      taskQueue,
      args: [input],
      workflowExecutionTimeout: `${firingSecondsMax(schedule.run)} seconds`
    },
    policies: { overlap: policies[overlap], catchupWindow: catchUpSecondsMax * 1000 },
    memo: { ...memo },
    // Also tells at once whether the namespace has them. A run that is started later could not.
    ...(isSearchable ? { typedSearchAttributes: keysOf(attributes) } : {})
  } as const
}

const timesOf = (times: RunSchedule["times"]): string =>
  "cron" in times ? `${times.cron.join(", ")} (${times.timeZone ?? "UTC"})` : `every ${times.everySeconds} s`

const stateOf = ({
  info,
  memo,
  scheduleId,
  state
}: ScheduleSummary | ScheduleDescription): Option.Option<RunScheduleState> =>
  Option.map(decodeMemo(memo), ({ tag, ...its }) => ({
    name: scheduleId,
    ...its,
    isPaused: state.paused,
    // Temporal also notes why it was resumed.
    ...(state.paused && noteIn(state) !== undefined ? { note: noteIn(state) } : {}),
    nextAt: state.paused ? [] : info.nextActionTimes,
    recent: info.recentActions.flatMap(({ action, takenAt }) => {
      const runId = runIdOf(scheduleId, tag, action.workflow.workflowId)
      return runId === undefined ? [] : [{ runId, startedAt: takenAt }]
    })
  }))

/** Written instead of a note, because an empty one is replaced by that of the SDK. */
const noNote = "Paused"

/** Notes of a schedule that was paused without one: ours, and those of the SDK, of older versions and of Temporal. */
const emptyNotes = /^$|^Paused$|^Paused via /u

/** Returns why a schedule is paused, if a person wrote that. */
const noteIn = ({ note = "" }: ScheduleDescription["state"]): string | undefined =>
  emptyNotes.test(note) ? undefined : note

const notFound = (name: string) =>
  new TemporalFailed({
    reason: "ScheduleNotFound",
    detail: `there is no schedule of durable runs ${JSON.stringify(name)}`,
    remedy: "See cogni-sandbox schedule list, and check the namespace"
  })

const outdated = (name: string) =>
  new TemporalFailed({
    reason: "Failed",
    detail: `the schedule ${JSON.stringify(name)} is not one of this version`,
    remedy: "Update this command, or remove the schedule and add it again"
  })

const addFailed = ({ name }: RunSchedule, { isSearchable, namespace }: RunsOptions, error: unknown) => {
  if (error instanceof ScheduleAlreadyRunning)
    return new TemporalFailed({
      reason: "ScheduleInUse",
      detail: `there is a schedule ${name} already`,
      remedy: "Choose another name, or remove it first"
    })
  // The SDK has a type of its own only for times that cannot be parsed.
  if (error instanceof TypeError || (isInvalid(error) && !isSearchable))
    return new TemporalFailed({
      reason: "ScheduleInvalid",
      detail: `Temporal refused the schedule: ${error instanceof Error ? error.message : String(error)}`,
      remedy: "Correct its cron expression, its interval or its time zone"
    })
  return isInvalid(error) ? attributesMissing(namespace) : failed("add the schedule", namespace, error)
}
