/**
 * The workflow `sandboxAgentRun`: binds the steps of a durable run to activities and timers of Temporal.
 *
 * This module is bundled for the sandbox of workflows. A change of the order of its steps must not be applied to runs
 * under way: the test that replays recorded histories fails.
 */
import {
  ActivityCancellationType,
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  isCancellation,
  patched,
  proxyActivities,
  proxyLocalActivities,
  sleep,
  TemporalFailure,
  TimeoutFailure,
  upsertSearchAttributes,
  workflowInfo
} from "@temporalio/workflow"
import { defineSearchAttributeKey } from "@temporalio/common"
import type { DurableOutcome, DurableRun, AttemptReport } from "../DurableRun.ts"
import type { HostActivities } from "./HostActivities.ts"
import { pauseSeconds } from "./PlacementPause.ts"
import { placementQueue } from "./Queues.ts"
import { leftMillis } from "./RunDeadline.ts"
import {
  type Checked,
  type Executed,
  perform,
  type Placed,
  type Refused,
  type Steps,
  type Stop,
  type Stopped
} from "./RunSteps.ts"
import type { RunTask } from "./RunTask.ts"
import * as SearchValue from "./SearchValue.ts"
import type { WorkflowInput } from "./WorkflowInput.ts"

/** Bundled with it, because one worker executes both. Temporal finds the interceptors by this name. */
export { scheduledAgentRun } from "./ScheduledAgentRun.ts"
export { interceptors } from "./WorkflowTrace.ts"

/** Interval in which an activity tells that its worker lives. */
const heartbeatTimeout = "10 seconds"

/** Runs from before do each step as an activity of its own, and report each change of their status at once. */
const hereFirstPatch = "here-first"

/** Runs from before are placed again at once if their host was full, and at most so often. */
const pausedPatch = "paused"
const unpausedPlacementsMax = 1000

/** Time for a step on the host that executes the workflow. */
const hereSecondsMax = 5

/** Time that a stopped run may take to end on its host. */
const stopSecondsMax = 300

/** Time for the delivery of commits, with its retries. */
const deliverySecondsMax = 1800

/** Time until the complete record is known. */
const recordSecondsMax = 600

const patient = {
  initialInterval: "1 second",
  backoffCoefficient: 1.5,
  maximumInterval: "15 seconds"
} as const

export async function sandboxAgentRun({ isSearchable, run }: WorkflowInput): Promise<DurableOutcome> {
  let stop: Stop | undefined
  const root = CancellationScope.current()
  const outcome = await CancellationScope.nonCancellable(async () => {
    // The steps that a stop gives up.
    const stoppable = new CancellationScope()
    const stopNow = (why: Stop) => {
      stop ??= why
      stoppable.cancel()
    }
    root.cancelRequested.catch(() => stopNow("Cancelled"))
    const clock = new CancellationScope()
    const timer = clock
      .run(() => sleep(leftMillis(run, workflowInfo().startTime, Date.now())))
      .then(
        () => stopNow("WallClockExceeded"),
        () => undefined
      )
    const { told, ...steps } = stepsOf(run, isSearchable, stoppable, () => stop)
    const ended = await perform(run, steps)
    told()
    clock.cancel()
    await timer
    return ended
  })
  if (outcome.status === "succeeded") return outcome
  throw ApplicationFailure.nonRetryable(
    outcome.message ?? "the run did not succeed",
    outcome.reason ?? outcome.status,
    outcome
  )
}

const stepsOf = (
  run: DurableRun,
  isSearchable: boolean,
  stoppable: CancellationScope,
  stopped: () => Stop | undefined
): Steps & { readonly told: () => void } => {
  const { grantId, needs, placementSecondsMax, request } = run
  const { graphId } = request
  const isHereFirst = patched(hereFirstPatch)
  /** Activities that are done by this worker, without a way over the server. */
  const here = proxyLocalActivities<HostActivities>({
    scheduleToCloseTimeout: `${hereSecondsMax} seconds`,
    retry: { maximumAttempts: 1 }
  })
  /** Any host may take it, so a grant that few hosts have needs many attempts. */
  const checking = proxyActivities<HostActivities>({
    startToCloseTimeout: "2 minutes",
    scheduleToCloseTimeout: `${placementSecondsMax} seconds`,
    heartbeatTimeout,
    retry: { ...patient, maximumInterval: "5 seconds" }
  })
  const placing = (secondsMax: number) =>
    proxyActivities<HostActivities>({
      ...(isHereFirst ? { taskQueue: placementQueue(workflowInfo().taskQueue) } : {}),
      startToCloseTimeout: "30 seconds",
      scheduleToCloseTimeout: `${secondsMax} seconds`,
      heartbeatTimeout,
      retry: patient
    })
  /** The attempt that is being placed, and since when. The clock of a workflow is in its history. */
  let attempt = { id: "", sinceMillis: 0 }
  const passedSeconds = () => (Date.now() - attempt.sinceMillis) / 1000
  /** The record of a lost host, asked of any other one. */
  const elsewhere = proxyActivities<HostActivities>({
    scheduleToCloseTimeout: `${recordSecondsMax} seconds`,
    heartbeatTimeout,
    retry: patient
  })
  /** Activities on the host of the run. */
  const on = ({ queue }: Placed, secondsMax: number) =>
    proxyActivities<HostActivities>({
      taskQueue: queue,
      scheduleToStartTimeout: `${run.hostGoneSecondsMax} seconds`,
      scheduleToCloseTimeout: `${secondsMax} seconds`,
      heartbeatTimeout,
      cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
      retry: { ...patient, maximumInterval: "5 seconds" }
    })
  let untold: Readonly<Record<string, string>> = {}
  /** Sets the search attributes that changed, if the namespace has them. */
  const told = () => {
    const changed = Object.entries(untold)
    untold = {}
    if (!isSearchable || changed.length === 0) return
    upsertSearchAttributes(
      changed.map(([name, value]) => ({ key: defineSearchAttributeKey(name, "KEYWORD"), value }))
    )
  }
  /** Notes search attributes. They are set before a step that may take long. */
  const tell = (attributes: Readonly<Record<string, string>>) => {
    untold = { ...untold, ...attributes }
    if (!isHereFirst) told()
  }
  /** Does a step by an activity of a queue. */
  const away = <A>(step: () => Promise<A>): Promise<A> => {
    told()
    return step()
  }
  /** Does a step here, or by an activity of a queue if that fails here. */
  const hereFirst = async <A>(local: () => Promise<A>, step: () => Promise<A>): Promise<A> => {
    if (!isHereFirst) return await step()
    try {
      return await local()
    } catch (error) {
      // A local activity fails with its own failure, or with one that wraps it.
      if (!(error instanceof TemporalFailure) || isCancellation(error)) throw error
      return await away(step)
    }
  }
  return {
    stopped,
    validate: async () => {
      const checked = await givenUp<Checked>(
        stoppable.run(() =>
          hereFirst(
            () => here.validateGrantActivity({ grantId, graphId }),
            () => checking.validateGrantActivity({ grantId, graphId })
          )
        ),
        (error) => ({
          _tag: "Refused",
          reason: "GrantUnchecked",
          message: `no host could check the grant in ${placementSecondsMax} seconds: ${causeOf(error)}`
        })
      )
      if (checked._tag === "Valid") tell({ CogniAccount: SearchValue.of(checked.billingAccountId) })
      return checked
    },
    place: (id) => {
      const asked = { runId: id, grantId, graphId, needs }
      if (attempt.id !== id) attempt = { id, sinceMillis: Date.now() }
      const secondsMax = Math.max(1, Math.ceil(placementSecondsMax - passedSeconds()))
      return givenUp<Placed | Refused>(
        stoppable.run(() =>
          hereFirst(
            () => here.placeHere(asked),
            () => placing(secondsMax).place(asked)
          )
        ),
        (error) => ({
          _tag: "Refused",
          reason: "NoRoom",
          message: `no host had room in ${placementSecondsMax} seconds: ${causeOf(error)}`
        })
      )
    },
    execute: async (placed, task) => {
      let isRunning = true
      const stopNow = () => on(placed, stopSecondsMax).stopRunActivity(task)
      // A heartbeat would tell it too, but seconds later.
      stoppable.cancelRequested.catch(() => (isHereFirst && isRunning ? executed(stopNow()) : undefined))
      const end = await executed(
        stoppable.run(() =>
          away(() => on(placed, run.wallSecondsMax + stopSecondsMax).executeGraphActivity(task))
        )
      )
      isRunning = false
      return end
    },
    pause: async (placements) => {
      if (!patched(pausedPatch)) return placements < unpausedPlacementsMax ? "Again" : "Late"
      const { historyLength, historySize } = workflowInfo()
      const seconds = pauseSeconds({
        placements,
        requestBytes: new TextEncoder().encode(JSON.stringify(request)).byteLength,
        placementSecondsMax,
        passedSeconds: passedSeconds(),
        historyBytes: historySize,
        historyEvents: historyLength
      })
      if (seconds === undefined) return "Late"
      tell({ CogniStatus: "placing" })
      return await givenUp<"Again">(
        stoppable.run(async () => {
          await away(() => sleep(Math.ceil(seconds * 1000)))
          return "Again" as const
        }),
        () => "Again"
      )
    },
    stop: (placed, task) => executed(away(() => on(placed, stopSecondsMax).stopRunActivity(task))),
    deliver: (placed, task) =>
      given<string | undefined>(
        away(() => on(placed, deliverySecondsMax).pushBranchActivity(task)),
        causeOf
      ),
    record: (placed, task, isHostLost) =>
      away(() => recorded(isHostLost ? elsewhere : on(placed, recordSecondsMax), placed, task)),
    progress: (status) => tell({ CogniStatus: status }),
    told
  }
}

const recorded = (
  activities: Pick<HostActivities, "recordRunCompleteActivity">,
  { host }: Placed,
  task: RunTask
): Promise<AttemptReport | undefined> =>
  given<AttemptReport | undefined>(activities.recordRunCompleteActivity({ ...task, host }), () => undefined)

/** Returns the result of an activity, or what its failure means. */
async function given<A>(step: Promise<A>, failed: (error: ActivityFailure) => A): Promise<A> {
  try {
    return await step
  } catch (error) {
    if (error instanceof ActivityFailure) return failed(error)
    throw error
  }
}

/** The same, for a step that a stop gives up. */
async function givenUp<A>(step: Promise<A>, failed: (error: ActivityFailure) => A): Promise<A | Stopped> {
  try {
    return await given(step, (error) => {
      if (isCancellation(error)) throw error
      return failed(error)
    })
  } catch (error) {
    if (isCancellation(error)) return { _tag: "Stopped" }
    throw error
  }
}

/** An activity that no worker of the host took or finished means that the host is lost. */
const executed = (step: Promise<Executed>): Promise<Executed> =>
  givenUp(step, (error) => {
    const last = error.cause instanceof TimeoutFailure ? error.cause.lastHeartbeatDetails : undefined
    return { _tag: "HostLost", message: causeOf(error), lastEventId: lastEventIdOf(last) }
  })

const lastEventIdOf = (details: unknown): number =>
  typeof details === "object" && details !== null && "lastEventId" in details
    ? Number(details.lastEventId)
    : 0

const causeOf = ({ cause }: ActivityFailure): string => {
  if (cause instanceof TimeoutFailure) return `no worker of it answered (${cause.timeoutType})`
  return cause instanceof Error ? cause.message : "unknown failure"
}
