/**
 * The runs that are under way in this server: who may begin one more, which can be cancelled, and how all of them end
 * when the server does.
 *
 * A place is taken before anything else is done for a run, and given back when nothing of it is left: so a run that is
 * being ended counts, and its id stands for one run only.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Deferred, Effect, Layer, Stream, SubscriptionRef } from "effect"
import { activeRuns } from "./ServerMetrics.ts"
import * as Problem from "./Problem.ts"
import type { ServerLimits } from "../ServerLimits.ts"

/** Whose run is to begin. */
export interface RosterEntry {
  readonly runId: RunId
  readonly grantId: string
  readonly billingAccountId: string
  readonly graphId: string
  readonly model: string
  /** What the grant itself says of runs at one time; the server's limit holds besides. */
  readonly concurrentRunsMax?: number | undefined
}

/** A run under way. */
export interface RosterRun extends RosterEntry {
  /** Settles when it is to end. */
  readonly cancelled: Effect.Effect<void>
  /** Tell it to end; returns at once. */
  readonly cancel: Effect.Effect<void>
}

/** Why a run may not begin, and when one may, where that is known. */
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
  const runs = Effect.map(SubscriptionRef.get(roster), ({ runs }) => [...runs.values()].toReversed())

  const change = <A>(modify: (before: Roster) => readonly [A, Roster]) =>
    SubscriptionRef.modify(roster, modify).pipe(
      Effect.tap(Effect.flatMap(SubscriptionRef.get(roster), ({ runs }) => activeRuns(runs.size)))
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
  /** `true`: nothing is left. */
  const emptyWithin = (seconds: number) =>
    Effect.interruptible(empty).pipe(
      Effect.as(true),
      Effect.timeoutOrElse({ duration: `${seconds} seconds`, orElse: () => Effect.succeed(false) })
    )

  return {
    /** A place, until the scope closes. */
    claim: (entry: RosterEntry) => Effect.acquireRelease(join(entry), leave),
    find: (runId: RunId) => Effect.map(SubscriptionRef.get(roster), ({ runs }) => runs.get(runId)),
    /** The newest first. */
    list: runs,
    isStopping: Effect.map(SubscriptionRef.get(roster), ({ stopping }) => stopping),
    /** Begins no more; lets those under way end, then cancels them, and waits until nothing of them is left. Bounded. */
    drain: Effect.gen(function* () {
      yield* SubscriptionRef.update(roster, (before) => ({ ...before, stopping: true }))
      if (yield* emptyWithin(limits.drainSecondsMax)) return
      const left = yield* runs
      yield* Effect.logWarning(`stopping: ${left.length} runs are cancelled`)
      yield* Effect.forEach(left, ({ cancel }) => cancel, { discard: true })
      if (!(yield* emptyWithin(limits.cancelSecondsMax))) {
        yield* Effect.logError(`stopping: runs have not ended within ${limits.cancelSecondsMax} seconds`)
      }
    })
  }
})

export class RunRoster extends Context.Service<RunRoster>()("@cogni/sandbox-server/RunRoster", { make }) {}

export const layer = (limits: ServerLimits): Layer.Layer<RunRoster> =>
  Layer.effect(RunRoster, RunRoster.make(limits))

/** How soon a place may be free, as far as anybody can say. */
const retrySeconds = 5

const refusal = (
  { runs, stopping }: Roster,
  { concurrentRunsMax, grantId, runId }: RosterEntry,
  { drainSecondsMax, runsMax, runsPerGrantMax }: ServerLimits
): RosterFull | undefined => {
  if (stopping) {
    const problem = Problem.make(
      "unavailable",
      "ServerStopping",
      "this server is stopping. Ask another, or later"
    )
    return { problem, retrySeconds: drainSecondsMax }
  }
  if (runs.has(runId))
    return { problem: Problem.make("conflict", "RunUnderWay", `${runId} is under way here`) }
  if (runs.size >= runsMax) {
    const problem = Problem.make(
      "unavailable",
      "ServerFull",
      `${runsUnderWay(runsMax)}, and this server takes no more. Try again when one has ended`
    )
    return { problem, retrySeconds }
  }
  const own = [...runs.values()].filter((run) => run.grantId === grantId).length
  if (own >= Math.min(runsPerGrantMax, concurrentRunsMax ?? runsPerGrantMax)) {
    const problem = Problem.make(
      "rate_limit",
      "TooManyRuns",
      `${runsUnderWay(own, " of this grant")}, and it may have no more. Try again when one has ended`
    )
    return { problem, retrySeconds }
  }
  return undefined
}

const runsUnderWay = (count: number, whose = "") =>
  count === 1 ? `1 run${whose} is under way` : `${count} runs${whose} are under way`
