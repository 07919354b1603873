/**
 * The steps of a durable run, and its end.
 *
 *     validate ─► place ─► execute ─► deliver ─► record
 *                   ▲         │ the host is full, or is lost with a known cost
 *                   └─────────┘ after a pause if it was full
 *
 * A run whose record was complete when it ended has nothing to deliver and to record.
 *
 * Runs inside a workflow, so it must decide the same for the same results of its steps: no clock, no randomness. It
 * imports only types.
 */
import type { DurableOutcome, DurableRun, DurableStatus, AttemptReport, RunSpend } from "../DurableRun.ts"
import type { RunTask } from "./RunTask.ts"

/** Why a run was stopped from outside. */
export type Stop = "Cancelled" | "WallClockExceeded"

export interface Refused {
  readonly _tag: "Refused"
  readonly reason: string
  readonly message: string
}

/** The grant permits the run. */
export type Checked = { readonly _tag: "Valid"; readonly billingAccountId: string } | Refused

/** The step was given up because the run is stopped. */
export interface Stopped {
  readonly _tag: "Stopped"
}

/** The host that runs an attempt. */
export interface Placed {
  readonly _tag: "Placed"
  readonly host: string
  readonly queue: string
  /** ID of the host, which another host of that name does not have. */
  readonly hostId?: string
}

/** The host refused the run because it is full. Nothing of it exists. */
export interface HostFull {
  readonly _tag: "HostFull"
}

/** The keeper or the whole host is gone. */
export interface HostLost {
  readonly _tag: "HostLost"
  readonly message: string
  readonly lastEventId: number
}

/** The run has ended, and its keeper knows how. */
export interface Ended {
  readonly _tag: "Ended"
  readonly report: AttemptReport
  /** The report is the complete record, and no commits are kept. Absent if a worker of an earlier version executed. */
  readonly isComplete?: boolean
}

export type Executed = Refused | Stopped | HostFull | HostLost | Ended

export interface Steps {
  readonly validate: () => Promise<Checked | Stopped>
  readonly place: (runId: string) => Promise<Placed | Refused | Stopped>
  readonly execute: (placed: Placed, task: RunTask) => Promise<Executed>
  /** Waits before the run is placed again, because its host was full. `Late`: the time of its placement is over. */
  readonly pause: (placements: number) => Promise<"Again" | "Late" | Stopped>
  /** Ends a run that may be under way. Is never given up. */
  readonly stop: (placed: Placed, task: RunTask) => Promise<Executed>
  /** Delivers commits of a run that succeeded. Returns a reason if they are still kept. */
  readonly deliver: (placed: Placed, task: RunTask) => Promise<string | undefined>
  /** Reads the complete record. `undefined`: no host could be asked. */
  readonly record: (placed: Placed, task: RunTask, isHostLost: boolean) => Promise<AttemptReport | undefined>
  /** Why the run is stopped, if it is. */
  readonly stopped: () => Stop | undefined
  readonly progress: (status: "placing" | "running" | "delivering" | DurableStatus) => void
}

/**
 * Statuses of a run whose server ended before it told how its graph ended. The sandbox of a `closed` one had ended, so
 * that its commits may have been delivered.
 */
const lostStatuses: ReadonlySet<string> = new Set(["abandoned", "closed"])

/** ID of an attempt, which is a run of its own. */
export const attemptId = (runId: string, attempt: number): string =>
  attempt === 0 ? runId : `${runId}-a${attempt}`

const stopMessage: Readonly<Record<Stop, string>> = {
  Cancelled: "the run was cancelled",
  WallClockExceeded: "the run exceeded its time limit (wallSecondsMax)"
}

/** Runs all steps, and returns how the run ended. */
export const perform = async (run: DurableRun, steps: Steps): Promise<DurableOutcome> => {
  const outcome = await performed(run, steps)
  steps.progress(outcome.status)
  return outcome
}

const performed = async (run: DurableRun, steps: Steps): Promise<DurableOutcome> => {
  const attempts: Array<AttemptReport> = []
  const end = (status: DurableStatus, reason?: string, message?: string): DurableOutcome => ({
    runId: run.runId,
    status,
    ...(reason === undefined ? {} : { reason }),
    ...(message === undefined ? {} : { message }),
    attempts
  })
  const halted = () => {
    const stop = steps.stopped() ?? "Cancelled"
    return end("stopped", stop, stopMessage[stop])
  }
  const valid = await steps.validate()
  if (valid._tag === "Refused") return end("refused", valid.reason, valid.message)
  if (valid._tag === "Stopped") return halted()
  let { request } = run
  for (let attempt = 0, placements = 1; ; placements++) {
    steps.progress("placing")
    const placed = await steps.place(attemptId(run.runId, attempt))
    if (placed._tag === "Refused") return end("refused", placed.reason, placed.message)
    if (placed._tag === "Stopped") return halted()
    const task = taskOf(run, attempt, request, placed)
    steps.progress("running")
    const executed = await executedBy(steps, placed, task)
    if (executed._tag === "HostFull") {
      const paused = await steps.pause(placements)
      if (paused === "Again") continue
      return paused === "Late" ? end("refused", "NoRoom", "every host was full. Try again later") : halted()
    }
    if (executed._tag === "Refused") return end("refused", executed.reason, executed.message)
    if (executed._tag === "Stopped") return halted()
    const isHostLost = executed._tag === "HostLost"
    const isComplete = executed._tag === "Ended" && executed.isComplete === true
    const kept = !isComplete && isDeliverable(executed) ? await delivered(steps, placed, task) : undefined
    const known = reportOf(executed, placed, task)
    const recorded = isComplete ? known : await steps.record(placed, task, isHostLost)
    const read = recorded === undefined ? known : { ...recorded, lastEventId: known.lastEventId }
    const report = kept === undefined ? afterDelivery(known, read) : read
    attempts.push(report)
    if (steps.stopped() !== undefined && report.status !== "succeeded") return halted()
    if (isHostLost ? hasEnded(report, request) : !lostStatuses.has(report.status))
      return ended(report, kept, end)
    const left = attempt + 1 < run.attemptsMax ? rest(request, report) : undefined
    if (left === undefined) return end("lost", "HostLost", lostMessage(executed, report))
    request = left
    attempt += 1
  }
}

const taskOf = (
  { grantId, hostGoneSecondsMax, needs, runId }: DurableRun,
  attempt: number,
  request: RunTask["request"],
  { hostId }: Placed
): RunTask => ({
  runId: attemptId(runId, attempt) as RunTask["runId"],
  attempt,
  grantId,
  request,
  needs,
  hostGoneSecondsMax,
  ...(hostId === undefined ? {} : { hostId })
})

/**
 * Executes an attempt. If that was given up, or if its worker died before it could pass a stop on, the sandbox may
 * still run, so it is stopped first.
 */
const executedBy = async (steps: Steps, placed: Placed, task: RunTask): Promise<Executed> => {
  const executed = await steps.execute(placed, task)
  const mayRun = executed._tag === "HostLost" && steps.stopped() !== undefined
  return mayRun || executed._tag === "Stopped" ? await steps.stop(placed, task) : executed
}

/** Reasons of a run whose agent succeeded, and whose commits could not be delivered for now. */
const undelivered: ReadonlySet<string | undefined> = new Set([
  "OriginUnavailable",
  "RelayFailed",
  "CredentialsUnavailable",
  "PushRefused",
  "PullRequestFailed"
])

const isUndelivered = ({ delivery, reason, status }: AttemptReport): boolean =>
  status === "failed" && delivery === "failed" && undelivered.has(reason)

const isDeliverable = (executed: HostLost | Ended): executed is Ended =>
  executed._tag === "Ended" && (executed.report.status === "succeeded" || isUndelivered(executed.report))

const delivered = async (steps: Steps, placed: Placed, task: RunTask): Promise<string | undefined> => {
  if (task.request.repository === undefined) return undefined
  steps.progress("delivering")
  return await steps.deliver(placed, task)
}

/** Statuses of the record of a run that has ended. */
const endedStatuses: ReadonlySet<string> = new Set(["succeeded", "failed", "interrupted"])

/** Deliveries after which no commits are kept on the host. */
const deliveredStatuses: ReadonlySet<string | undefined> = new Set([
  "skipped",
  "pushed",
  "unchanged",
  "patched"
])

/** Whether a run ended on a host that no worker serves any more: such a host may only be cut off from Temporal. */
const hasEnded = ({ delivery, status }: AttemptReport, { repository }: RunTask["request"]): boolean =>
  endedStatuses.has(status) &&
  (status !== "succeeded" || repository === undefined || deliveredStatuses.has(delivery))

/** The record of a run whose commits were delivered late still says that they were not. */
const afterDelivery = (known: AttemptReport, read: AttemptReport): AttemptReport => {
  if (!isUndelivered(known)) return read
  const { reason: _, ...rest } = read
  return { ...rest, status: "succeeded" }
}

/** Converts the report of an attempt that was not lost. */
const ended = (
  { exitCode, reason, status }: AttemptReport,
  kept: string | undefined,
  end: (status: DurableStatus, reason?: string, message?: string) => DurableOutcome
): DurableOutcome => {
  if (kept !== undefined)
    return end("failed", "NotDelivered", `the commits of the run are kept on its host: ${kept}`)
  if (status === "succeeded") return end("succeeded")
  if (status === "interrupted") {
    return end("stopped", "Interrupted", "the run was ended on its host, by a cancellation or a shutdown")
  }
  return end("failed", reason ?? "AgentFailed", exitCode === undefined ? undefined : `exit code ${exitCode}`)
}

/** The known facts of an attempt whose complete record could not be read. */
const reportOf = (executed: HostLost | Ended, { host }: Placed, { attempt, runId }: RunTask): AttemptReport =>
  executed._tag === "Ended"
    ? executed.report
    : {
        runId,
        attempt,
        host,
        status: "unknown",
        spend: { calls: 0, isFinal: false },
        lastEventId: executed.lastEventId
      }

const lostMessage = (executed: HostLost | Ended, { spend, status }: AttemptReport): string => {
  const why = executed._tag === "HostLost" ? executed.message : "its server ended during the run"
  if (status === "unknown") return `the host was lost: ${why}. Its cost is unknown until the host is back`
  const cost = spend.costUsd === undefined ? "no known cost" : `a cost of $${spend.costUsd}`
  return `the host was lost: ${why}. The run has ${cost}${spend.isFinal ? "" : ", and may have spent more"}`
}

/**
 * Returns the request of the next attempt, with what is left of the budget. `undefined`: the lost attempt may still run
 * or may have delivered its commits, it may have spent more than is known, or nothing is left.
 */
const rest = (
  request: RunTask["request"],
  { spend, status }: AttemptReport
): RunTask["request"] | undefined => {
  if (status !== "abandoned" || !spend.isFinal) return undefined
  if (request.budget === undefined) return request
  const { budget } = request
  const left = {
    ...budget,
    ...minus("callsMax", budget.callsMax, spend.calls),
    ...minus("inputTokensMax", budget.inputTokensMax, tokens(spend, "inputTokens")),
    ...minus("outputTokensMax", budget.outputTokensMax, tokens(spend, "outputTokens")),
    ...minus("costUsdMax", budget.costUsdMax, spend.costUsd ?? (spend.calls === 0 ? 0 : Infinity))
  }
  const spent = [left.callsMax, left.inputTokensMax, left.outputTokensMax].some((one) => (one ?? 1) < 1)
  return spent || (left.costUsdMax ?? 1) < 1e-6 ? undefined : { ...request, budget: left }
}

/** Tokens that are not counted could be any number. */
const tokens = ({ calls, ...spend }: RunSpend, name: "inputTokens" | "outputTokens"): number =>
  spend[name] ?? (calls === 0 ? 0 : Infinity)

const minus = <Name extends string>(name: Name, limit: number | undefined, spent: number) =>
  limit === undefined ? {} : ({ [name]: limit - spent } as Record<Name, number>)
