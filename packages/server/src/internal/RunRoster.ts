/**
 * The runs under way in this server: limits concurrent runs, cancels runs, and drains them on shutdown.
 *
 * A run has an entry from before its first step until nothing of it is left. So a run that is ending still counts, and
 * its ID is not used twice.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Deferred, Effect, Layer, Stream, SubscriptionRef } from "effect"
import * as ServerMetrics from "./ServerMetrics.ts"
import * as Problem from "./Problem.ts"
import type { ServerLimits } from "../ServerLimits.ts"

/** A run to be started, and its grant. */
export interface RosterEntry {
  readonly runId: RunId
  readonly grantId: string
  readonly billingAccountId: string
  readonly graphId: string
  readonly model: string
  /** URL of the repository that the run works in. */
  readonly repository?: string | undefined
  /** The grant's limit of concurrent runs. The server's limits apply too. */
  readonly concurrentRunsMax?: number | undefined
  /** True if the run lives on without its caller. */
  readonly isDetached?: boolean | undefined
}

/** A run under way. */
export interface RosterRun extends RosterEntry {
  /** Completes when the run was cancelled. */
  readonly cancelled: Effect.Effect<void>
  /** Requests the end of the run, without waiting for it. */
  readonly cancel: Effect.Effect<void>
}

/** Why a run may not start, and when to retry, if known. */
export interface RosterFull {
  readonly problem:
    | typeof Problem.Conflict.Type
    | typeof Problem.TooMany.Type
    | typeof Problem.Unavailable.Type
  readonly retrySeconds?: number
}

interface Roster {
  readonly stopping: boolean
  readonly runs: ReadonlyMap<RunId, RosterRun>
}

const make = Effect.fnUntraced(function* (limits: ServerLimits) {
  const roster = yield* SubscriptionRef.make<Roster>({ stopping: false, runs: new Map() })
  yield* ServerMetrics.serving(limits.runsMax)
  const runs = Effect.map(SubscriptionRef.get(roster), ({ runs }) => [...runs.values()].toReversed())

  const change = <A>(modify: (before: Roster) => readonly [A, Roster]) =>
    SubscriptionRef.modify(roster, modify).pipe(
      Effect.tap(
        Effect.flatMap(SubscriptionRef.get(roster), ({ runs }) => ServerMetrics.activeRuns(runs.size))
      )
    )

  const join = (entry: RosterEntry) =>
    Effect.flatMap(Deferred.make<void>(), (stop) => {
      const run: RosterRun = {
        ...entry,
        cancelled: Deferred.await(stop),
        cancel: Effect.asVoid(Deferred.succeed(stop, undefined))
      }
      return change((before): readonly [Effect.Effect<RosterRun, RosterFull>, Roster] => {
        const full = refusal(before, entry, limits)
        return full === undefined
          ? [Effect.succeed(run), { ...before, runs: new Map(before.runs).set(entry.runId, run) }]
          : [Effect.fail(full), before]
      }).pipe(Effect.flatten)
    })

  const leave = ({ runId }: RosterRun) =>
    change((before) => [
      undefined,
      { ...before, runs: new Map([...before.runs].filter(([id]) => id !== runId)) }
    ])

  const empty = SubscriptionRef.changes(roster).pipe(
    Stream.filter(({ runs }) => runs.size === 0),
    Stream.take(1),
    Stream.runDrain
  )
  /** Waits until no run is left. Returns `false` on timeout. */
  const emptyWithin = (seconds: number) =>
    Effect.interruptible(empty).pipe(
      Effect.as(true),
      Effect.timeoutOrElse({ duration: `${seconds} seconds`, orElse: () => Effect.succeed(false) })
    )

  return {
    /** Adds a run until the scope closes. Fails if it may not start. */
    claim: (entry: RosterEntry) => Effect.acquireRelease(join(entry), leave),
    find: (runId: RunId) => Effect.map(SubscriptionRef.get(roster), ({ runs }) => runs.get(runId)),
    /** The runs under way, newest first. */
    list: runs,
    isStopping: Effect.map(SubscriptionRef.get(roster), ({ stopping }) => stopping),
    /** Accepts no more runs, waits for those under way, then cancels them and waits for their end. Has timeouts. */
    drain: Effect.gen(function* () {
      yield* SubscriptionRef.update(roster, (before) => ({ ...before, stopping: true }))
      if (yield* emptyWithin(limits.drainSecondsMax)) return
      const left = yield* runs
      yield* Effect.logWarning(`stopping: cancelling ${left.length} runs`)
      yield* Effect.forEach(left, ({ cancel }) => cancel, { discard: true })
      if (!(yield* emptyWithin(limits.cancelSecondsMax))) {
        yield* Effect.logError(`stopping: some runs did not end within ${limits.cancelSecondsMax} seconds`)
      }
    })
  }
})

export class RunRoster extends Context.Service<RunRoster>()("@cogni/sandbox-server/RunRoster", { make }) {}

export const layer = (limits: ServerLimits): Layer.Layer<RunRoster> =>
  Layer.effect(RunRoster, RunRoster.make(limits))

/** Estimated seconds until another run may start. */
export const retrySeconds = 5

const refusal = (
  { runs, stopping }: Roster,
  { concurrentRunsMax, grantId, runId }: RosterEntry,
  { drainSecondsMax, runsMax, runsPerGrantMax }: ServerLimits
): RosterFull | undefined => {
  if (stopping) {
    const problem = Problem.make(
      "unavailable",
      "ServerStopping",
      "this server is stopping. Try again later, or use another server"
    )
    return { problem, retrySeconds: drainSecondsMax }
  }
  if (runs.has(runId))
    return { problem: Problem.make("conflict", "RunUnderWay", `run ${runId} is already under way`) }
  if (runs.size >= runsMax) {
    const problem = Problem.make(
      "unavailable",
      "ServerFull",
      `${runsUnderWay(runsMax)}, the maximum of this server. Try again when one has ended`
    )
    return { problem, retrySeconds }
  }
  const own = [...runs.values()].filter((run) => run.grantId === grantId).length
  if (own >= Math.min(runsPerGrantMax, concurrentRunsMax ?? runsPerGrantMax)) {
    const problem = Problem.make(
      "rate_limit",
      "TooManyRuns",
      `${runsUnderWay(own, " of this grant")}, its maximum. Try again when one has ended`
    )
    return { problem, retrySeconds }
  }
  return undefined
}

const runsUnderWay = (count: number, whose = "") =>
  count === 1 ? `1 run${whose} is under way` : `${count} runs${whose} are under way`
