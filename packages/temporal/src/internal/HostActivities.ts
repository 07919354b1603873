/** Activities of Temporal over the steps of a host. Their inputs come from a history, so they are decoded. */
import { ApplicationFailure, CancelledFailure, Context as ActivityContext } from "@temporalio/activity"
import { Cause, Effect, Exit, Option, Schema } from "effect"
import { HostNeeds, type AttemptReport } from "../DurableRun.ts"
import { KeeperRefused } from "../HostKeeper.ts"
import * as ActivityTrace from "./ActivityTrace.ts"
import type { HostRuns, Watch } from "./HostRuns.ts"
import { messageOf } from "./MisfitWords.ts"
import type { Checked, Executed, Placed } from "./RunSteps.ts"
import { RunTask } from "./RunTask.ts"

const Checking = Schema.Struct({ grantId: Schema.String, graphId: Schema.String })

const Placing = Schema.Struct({ ...Checking.fields, runId: Schema.String, needs: HostNeeds })

const Recording = Schema.Struct({ ...RunTask.fields, host: Schema.String })

/** The activities of a host. The input of each is plain JSON. */
export interface HostActivities {
  readonly validateGrantActivity: (asked: typeof Checking.Encoded) => Promise<Checked>
  /** Answers with the queue of this host, or fails so that another host is asked. */
  readonly place: (asked: typeof Placing.Encoded) => Promise<Placed>
  /** The same for a local activity: fails if other runs may wait for this host. */
  readonly placeHere: (asked: typeof Placing.Encoded) => Promise<Placed>
  readonly executeGraphActivity: (task: unknown) => Promise<Executed>
  readonly stopRunActivity: (task: unknown) => Promise<Executed>
  readonly pushBranchActivity: (task: unknown) => Promise<string | undefined>
  readonly recordRunCompleteActivity: (task: unknown) => Promise<AttemptReport | undefined>
}

/** Interval of heartbeats of activities that only wait. */
const beatMillis = 1000

/** Runs an effect of an activity. Rejects if it is interrupted. */
export type RunEffect = <A>(
  effect: Effect.Effect<A>,
  options?: { readonly signal: AbortSignal }
) => Promise<A>

export const make = (runs: HostRuns, queue: string, runEffect: RunEffect): HostActivities => {
  /** Throws what Temporal retries, or what it does not. */
  const run = async <A, E>(effect: Effect.Effect<A, E>, signal: AbortSignal): Promise<A> => {
    const exit = await runEffect(Effect.exit(ActivityTrace.traced(effect)), { signal }).catch(() => undefined)
    if (exit === undefined) throw interrupted()
    if (Exit.isSuccess(exit)) return exit.value
    throw failureOf(exit.cause)
  }

  /** Decodes the input. One that is invalid stays invalid, so it is not retried. */
  const decoded = <A, B, E>(
    schema: Schema.Codec<A, unknown>,
    input: unknown,
    use: (value: A) => Effect.Effect<B, E>
  ): Promise<B> =>
    run(
      Schema.decodeUnknownEffect(schema)(input).pipe(
        Effect.mapError(invalid),
        Effect.flatMap((value) => Effect.mapError(use(value), (error) => inWords(error, value)))
      ),
      ActivityContext.current().cancellationSignal
    )

  /** Runs a step that heartbeats. Only a cancellation of the run stops its sandbox, not the end of a worker. */
  const watched = async (
    input: unknown,
    step: (task: RunTask, watch: Watch) => Effect.Effect<Executed, unknown>
  ) => {
    const context = ActivityContext.current()
    const task = Option.getOrUndefined(Schema.decodeUnknownOption(RunTask)(input))
    if (task === undefined) throw invalid()
    let lastEventId = lastEventIdOf(context.info.heartbeatDetails)
    const watch: Watch = {
      isRepeated: context.info.attempt > 1,
      lastEventId,
      beat: Effect.sync(() => context.heartbeat({ runId: task.runId, lastEventId })),
      followed: (eventId) =>
        Effect.sync(() => {
          lastEventId = eventId
        }),
      cancelled: Effect.callback<void>((resume) => {
        context.cancelled.catch((error: unknown) => {
          if (isStop(error)) resume(Effect.void)
        })
      })
    }
    // The end of this worker ends the step, and not the run.
    const abandoned = new AbortController()
    context.cancelled.catch((error: unknown) => {
      if (!isStop(error)) abandoned.abort()
    })
    return await run(step(task, watch), abandoned.signal)
  }

  /** Heartbeats while a step waits. A local activity ends with its worker, and has none. */
  const beating = async <A>(step: Promise<A>): Promise<A> => {
    const context = ActivityContext.current()
    if (context.info.isLocal) return await step
    const timer = setInterval(() => context.heartbeat(), beatMillis)
    try {
      return await step
    } finally {
      clearInterval(timer)
    }
  }

  const placedBy = (place: HostRuns["place"] | HostRuns["placeHere"]) => (asked: typeof Placing.Encoded) =>
    decoded(Placing, asked, (placing) =>
      Effect.map(place(placing), (its): Placed => ({ _tag: "Placed", ...its, queue }))
    )

  return {
    validateGrantActivity: (asked) => beating(decoded(Checking, asked, runs.validate)),
    place: (asked) => beating(placedBy(runs.place)(asked)),
    placeHere: placedBy(runs.placeHere),
    executeGraphActivity: (task) => watched(task, runs.execute),
    stopRunActivity: (task) => watched(task, runs.stop),
    pushBranchActivity: (task) => beating(decoded(RunTask, task, runs.deliver)),
    recordRunCompleteActivity: (task) => beating(decoded(Recording, task, runs.record))
  }
}

/** Without the details of its error, which could contain a prompt. */
const invalid = () =>
  ApplicationFailure.nonRetryable("the input of an activity is invalid: update the workers", "InputInvalid")

/** Converts the name of a reason into a failure with a message. */
const inWords = <E>(error: E, asked: unknown): E | ApplicationFailure =>
  typeof error === "string" ? ApplicationFailure.retryable(messageOf(error, asked), error) : error

/** Whether a run is to be stopped: its workflow was cancelled, or is gone. */
const isStop = (error: unknown): error is CancelledFailure =>
  error instanceof CancelledFailure && (error.message === "CANCELLED" || error.message === "NOT_FOUND")

const lastEventIdOf = (details: unknown): number =>
  typeof details === "object" &&
  details !== null &&
  "lastEventId" in details &&
  Number.isSafeInteger(details.lastEventId)
    ? (details.lastEventId as number)
    : 0

/** An activity that was not cancelled must not end as cancelled: the server would wait for its heartbeats. */
const interrupted = (): Error => {
  const { reason } = ActivityContext.current().cancellationSignal
  return isStop(reason) ? reason : ApplicationFailure.retryable("its worker has ended", "WorkerEnded")
}

/** Failures have a message for the operator. They contain no prompt and no token. */
const failureOf = (cause: Cause.Cause<unknown>): Error => {
  if (Cause.hasInterruptsOnly(cause)) return interrupted()
  const error = Cause.squash(cause)
  if (error instanceof KeeperRefused && !error.isForNow)
    return ApplicationFailure.nonRetryable(error.message, error.reason)
  if (error instanceof Error) return error
  return ApplicationFailure.retryable(String(error), String(error))
}
