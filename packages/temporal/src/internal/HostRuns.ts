/**
 * The steps of durable runs on one host: decides by the host's capacity, and asks its keepers, one for each grant.
 *
 * Holds nothing of a run but its place. A step can be started again at any point, by another process too.
 */
import { Clock, Duration, Effect, Option, Ref, Schedule, Stream, SubscriptionRef } from "effect"
import type { AttemptReport } from "../DurableRun.ts"
import { isOver, type Keeper, type KeeperError, type KeeperRun } from "../HostKeeper.ts"
import * as Placement from "./Placement.ts"
import type { Checked, Ended, Executed, HostLost, Refused } from "./RunSteps.ts"
import type { RunTask } from "./RunTask.ts"

export interface HostOptions {
  /** Name of the host, which no other host has. */
  readonly name: string
  /** ID of the host, if its keepers tell one. */
  readonly hostId?: string | undefined
  readonly capacity: Placement.HostCapacity
  /** The keeper of each grant, by its ID. */
  readonly keepers: ReadonlyMap<string, Keeper>
}

/** The connection of a step to its activity, while it waits for a run. */
export interface Watch {
  /** Another worker may have started the run. */
  readonly isRepeated: boolean
  /** Number of the last event that an earlier worker followed. */
  readonly lastEventId: number
  /** Tells that this worker lives. */
  readonly beat: Effect.Effect<void>
  /** Notes the number of an event that was followed. */
  readonly followed: (eventId: number) => Effect.Effect<void>
  /** Completes when the run is to be stopped. */
  readonly cancelled: Effect.Effect<void>
}

/** Time without an answer after which the queue of placements counts as empty, in milliseconds. */
const idleMillisMin = 200

/** How long a keeper that is full gets no runs, if it does not say, and at most: it may have room much sooner. */
const fullSecondsDefault = 5
const fullSecondsMax = 60

/** A time in milliseconds that never goes back: a host must not close for an hour when its clock is corrected. */
const nowMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))

/** How often a delivery that is under way is asked about. */
const deliveryPollSeconds = 2

/** First time between two questions about a run that has just ended. It doubles, until it is half a second. */
const soonMillis = 20

const soon = Schedule.min([Schedule.exponential(`${soonMillis} millis`), Schedule.spaced("500 millis")])

/** Time in which the step that followed a run waits for its complete record, so that no other step has to. */
const completeSecondsMax = 2

/** Time for the keeper to read the audit of a run that has ended. */
const settledSecondsMax = 60

const refused = (reason: string, message: string): Refused => ({ _tag: "Refused", reason, message })

export const make = Effect.fnUntraced(function* ({ capacity, hostId, keepers, name }: HostOptions) {
  const places = yield* SubscriptionRef.make(Placement.empty)
  /** Time since which the queue of placements has had nothing for this host, in milliseconds. */
  const idleSince = yield* Ref.make<number | undefined>(undefined)

  const keeperOf = (grantId: string) =>
    Option.fromUndefinedOr(keepers.get(grantId)).pipe(
      Option.match({
        onNone: () => Effect.fail("NoSuchGrant" as const),
        onSome: Effect.succeed
      })
    )

  const validate = Effect.fnUntraced(function* (asked: { grantId: string; graphId: string }) {
    const keeper = yield* keeperOf(asked.grantId)
    const found = yield* Effect.result(keeper.grant)
    if (found._tag === "Failure") {
      const error = found.failure
      if (error._tag === "KeeperUnreachable" || error.isForNow) return yield* Effect.fail(error)
      return refused(error.reason, error.message)
    }
    const { allowSandbox, billingAccountId, id, mayWrite } = found.success
    if (!mayWrite) return refused("GrantReadOnly", `grant ${id} is read-only. Use another grant`)
    // Other graphs do not need that permission. The keeper checks everything else when it starts the run.
    if (!allowSandbox && asked.graphId.startsWith("sandbox:"))
      return refused(
        "SandboxNotAllowed",
        `grant ${id} does not allow sandboxes. Create one with --allow-sandbox`
      )
    return { _tag: "Valid", billingAccountId } satisfies Checked
  })

  const place = Effect.fnUntraced(function* (asked: Placement.Asked) {
    const now = yield* nowMillis
    const misfit = yield* SubscriptionRef.modify(places, (before) => {
      const found = Placement.misfit(capacity, before, asked, now)
      return [found, found === undefined ? Placement.reserve(before, asked, now) : before]
    })
    if (misfit !== undefined) return yield* Effect.fail(misfit)
    return { host: name, ...(hostId === undefined ? {} : { hostId }) }
  })

  /** Closes this host for a while, because its keeper is full. Only for one grant, if that is at a limit of its own. */
  const closeFor = ({ isOfGrant, retrySeconds }: KeeperFull, grantId: string) =>
    Effect.flatMap(nowMillis, (now) =>
      SubscriptionRef.update(places, (before) => {
        const until = now + retrySeconds * 1000
        return isOfGrant ? Placement.closeGrant(before, grantId, until, now) : Placement.close(before, until)
      })
    )

  /** Holds a place during a step. Afterwards, it is kept for the next step if there is one. */
  const placed = <A, E>(task: RunTask, use: Effect.Effect<A, E>, isFollowed: (result: A) => boolean) =>
    Effect.acquireUseRelease(
      SubscriptionRef.update(places, (before) => Placement.begin(before, task.runId, task.needs)),
      () => use,
      (_, exit) =>
        Effect.flatMap(nowMillis, (now) =>
          SubscriptionRef.update(places, (before) =>
            exit._tag === "Success" && isFollowed(exit.value)
              ? Placement.linger(before, task.runId, now)
              : Placement.leave(before, task.runId)
          )
        )
    )

  const execute = Effect.fnUntraced(
    function* (task: RunTask, watch: Watch): Effect.fn.Return<Executed, "NoSuchGrant"> {
      const keeper = yield* keeperOf(task.grantId)
      const started = yield* begun(keeper, task, watch)
      if (started._tag === "KeeperFull") {
        yield* closeFor(started, task.grantId)
        return { _tag: "HostFull" }
      }
      return started._tag === "Begun" ? yield* followed(keeper, name, task, watch) : started
    },
    (effect, task, watch) =>
      placed(task, beating(effect, watch), (end) => end._tag === "Ended" && end.isComplete !== true)
  )

  /** Whether a step of this worker starts or follows a run. */
  const isExecuting = ({ runId }: RunTask) =>
    Effect.map(SubscriptionRef.get(places), ({ runs }) => {
      const its = runs.get(runId)
      return its !== undefined && its.expiresAt === undefined
    })

  return {
    validate,
    place,
    /** Places a run without asking other hosts. Fails with `NotIdle` if other runs may wait for a place. */
    placeHere: Effect.fnUntraced(function* (asked: Placement.Asked) {
      const since = yield* Ref.get(idleSince)
      const now = yield* nowMillis
      if (since === undefined || now - since < idleMillisMin) return yield* Effect.fail("NotIdle" as const)
      return yield* place(asked)
    }),
    /** Returns when a run may be placed here, so that no placement is taken that would only be given back. */
    room: Effect.flatMap(nowMillis, (now) =>
      SubscriptionRef.changes(places).pipe(
        Stream.filter((its) => Placement.hasRoom(capacity, its, now)),
        Stream.runHead,
        // A reservation also ends by time.
        Effect.timeoutOption("1 second")
      )
    ).pipe(Effect.repeat({ until: Option.isSome }), Effect.asVoid),
    /** Notes whether the queue of placements was asked and has not answered yet. */
    waiting: (isWaiting: boolean) =>
      Effect.flatMap(nowMillis, (now) => Ref.set(idleSince, isWaiting ? now : undefined)),
    execute,
    /** Stops a run that an earlier step may have started, and waits for its end. */
    stop: Effect.fnUntraced(
      function* (task: RunTask, watch: Watch): Effect.fn.Return<Executed, "NoSuchGrant"> {
        const keeper = yield* keeperOf(task.grantId)
        const found = yield* keeper.describe(task.runId).pipe(
          (describing) => patiently(describing, task),
          // A run that is being started is not known yet.
          Effect.repeat({
            schedule: soon,
            while: (run) => Effect.map(isExecuting(task), (isHere) => isHere && run === undefined)
          }),
          Effect.result
        )
        if (found._tag === "Failure") return lost(found.failure, watch.lastEventId)
        if (found.success === undefined) {
          const replaced = yield* Effect.result(isReplaced(keeper, task))
          if (replaced._tag === "Failure") return lost(replaced.failure, watch.lastEventId)
          if (replaced.success) return lost(replacement, watch.lastEventId)
          yield* SubscriptionRef.update(places, (before) => Placement.giveBack(before, task.runId))
          return { _tag: "Stopped" }
        }
        return yield* followed(keeper, name, task, { ...watch, cancelled: Effect.void })
      },
      (effect, _, watch) => beating(effect, watch)
    ),
    /** Returns why commits are still kept, or `undefined`. */
    deliver: Effect.fnUntraced(
      function* (task: RunTask) {
        const keeper = yield* keeperOf(task.grantId)
        const before = yield* keeper.describe(task.runId)
        if (before?.delivery !== undefined && !isKept(before.delivery)) return undefined
        if (before === undefined && (yield* isReplaced(keeper, task))) return replacement.message
        const status = yield* keeper.deliver(task.runId).pipe(
          Effect.repeat({
            schedule: Schedule.spaced(`${deliveryPollSeconds} seconds`),
            while: (status) => status === "underWay"
          })
        )
        // Nothing is kept: it was delivered, or there was nothing to deliver.
        return status !== undefined && isKept(status) ? status : undefined
      },
      (effect, task) => placed(task, effect, () => true)
    ),
    /** Waits until the record of a run is complete. */
    record: Effect.fnUntraced(function* ({ attempt, grantId, host, runId }: RunTask & { host: string }) {
      const keeper = yield* keeperOf(grantId)
      const run = yield* settled(keeper, runId)
      yield* SubscriptionRef.update(places, (before) => Placement.leave(before, runId))
      return run && reportOf(run, { attempt, host, lastEventId: 0 })
    }),
    /** Notes the graphs whose image is missing. */
    lack: (missingGraphIds: ReadonlyArray<string>) =>
      SubscriptionRef.update(places, (before) => Placement.lack(before, missingGraphIds)),
    /** Takes no more runs. Returns when none is left. */
    drain: Effect.gen(function* () {
      yield* SubscriptionRef.update(places, Placement.drain)
      yield* Effect.flatMap(nowMillis, (now) =>
        Effect.map(SubscriptionRef.get(places), (left) => Placement.count(left, now))
      ).pipe(Effect.repeat({ schedule: Schedule.spaced("1 second"), while: (left) => left > 0 }))
    })
  }
})

export type HostRuns = Effect.Success<ReturnType<typeof make>>

const isKept = (delivery: string): boolean => delivery === "kept" || delivery === "failed"

/** Tells every second that this worker lives. */
const beating = <A, E>(effect: Effect.Effect<A, E>, { beat }: Watch): Effect.Effect<A, E> =>
  Effect.raceFirst(effect, Effect.andThen(Effect.repeat(beat, Schedule.spaced("1 second")), Effect.never))

/** Retries while a keeper does not answer or starts, until it counts as lost. */
const patiently = <A>(effect: Effect.Effect<A, KeeperError>, { hostGoneSecondsMax }: RunTask) =>
  Effect.retry(effect, {
    schedule: Schedule.spaced("1 second").pipe(
      Schedule.upTo({ duration: Duration.seconds(hostGoneSecondsMax) })
    ),
    while: (error) => error._tag === "KeeperUnreachable" || error.isForNow
  })

const lost = ({ message }: Pick<KeeperError, "message">, lastEventId: number): HostLost => ({
  _tag: "HostLost",
  message,
  lastEventId
})

/** Whether another host has taken the name of the one on which a run was placed. It knows nothing of that run. */
const isReplaced = (keeper: Keeper, task: RunTask) =>
  task.hostId === undefined
    ? Effect.succeed(false)
    : Effect.map(patiently(keeper.host, task), ({ hostId }) => hostId !== undefined && hostId !== task.hostId)

const replacement = { message: "it was replaced by another host of its name" }

/** The keeper refused a start for now. */
interface KeeperFull {
  readonly _tag: "KeeperFull"
  readonly isOfGrant: boolean
  readonly retrySeconds: number
}

/** Starts the run, or finds that it was started. A keeper that is full refuses a start, but knows its runs. */
const begun = Effect.fnUntraced(function* (
  keeper: Keeper,
  task: RunTask,
  { isRepeated, lastEventId }: Watch
) {
  if (isRepeated) {
    const found = yield* Effect.result(patiently(keeper.describe(task.runId), task))
    if (found._tag === "Failure") return lost(found.failure, lastEventId)
    if (found.success !== undefined) return { _tag: "Begun" } as const
    // The run may be under way on the host that had this name before.
    const replaced = yield* Effect.result(isReplaced(keeper, task))
    if (replaced._tag === "Failure") return lost(replaced.failure, lastEventId)
    if (replaced.success) return lost(replacement, lastEventId)
  }
  const result = yield* keeper.start(task).pipe(
    Effect.retry({
      schedule: Schedule.spaced("1 second").pipe(
        Schedule.upTo({ duration: Duration.seconds(task.hostGoneSecondsMax) })
      ),
      while: ({ _tag }) => _tag === "KeeperUnreachable"
    }),
    Effect.result
  )
  if (result._tag === "Success") return { _tag: "Begun" } as const
  const error = result.failure
  if (error._tag === "KeeperUnreachable") return lost(error, lastEventId)
  return error.isForNow
    ? ({
        _tag: "KeeperFull",
        isOfGrant: error.isOfGrant,
        retrySeconds: Math.min(error.retrySeconds ?? fullSecondsDefault, fullSecondsMax)
      } satisfies KeeperFull)
    : refused(error.reason, error.message)
})

/** Follows a run until it has ended. Cancels it on request. */
const followed = Effect.fnUntraced(function* (
  keeper: Keeper,
  host: string,
  task: RunTask,
  { cancelled, followed: told, lastEventId }: Watch
): Effect.fn.Return<Executed> {
  const last = yield* Ref.make(lastEventId)
  const cancelling = cancelled.pipe(
    Effect.andThen(patiently(keeper.cancel(task.runId), task)),
    // The loop below finds out that the keeper is gone.
    Effect.ignore({ log: "Warn" })
  )
  const events = Ref.get(last).pipe(
    Effect.flatMap((after) =>
      Stream.runForEach(keeper.follow(task.runId, after), ({ id }) =>
        Effect.andThen(Ref.set(last, id), told(id))
      )
    ),
    // A run whose events are elsewhere, or cannot be read, still has a record.
    Effect.catch((error) => Effect.logDebug(`events of ${task.runId}: ${error.message}`)),
    Effect.andThen(patiently(keeper.describe(task.runId), task)),
    Effect.repeat({ schedule: soon, until: (run) => run === undefined || isOver(run) })
  )
  return yield* Effect.gen(function* () {
    yield* Effect.forkScoped(cancelling)
    const ended = yield* Effect.result(events)
    const lastId = yield* Ref.get(last)
    if (ended._tag === "Failure") return lost(ended.failure, lastId)
    const run = ended.success
    if (run === undefined)
      return refused(
        "RunForgotten",
        `run ${task.runId} ended before it had a record. See the log of its host`
      )
    const facts = { attempt: task.attempt, host, lastEventId: lastId }
    const complete = yield* completed(keeper, run, task)
    return complete === undefined
      ? ({ _tag: "Ended", report: reportOf(run, facts) } satisfies Ended)
      : ({ _tag: "Ended", report: reportOf(complete, facts), isComplete: true } satisfies Ended)
  }).pipe(Effect.scoped)
})

/** Whether nothing of a run that has ended is left to do: its audit was read, and none of its commits are kept. */
const isComplete = ({ delivery, isSettled, status }: KeeperRun, { request }: RunTask): boolean => {
  const isLost = status === "abandoned" || status === "closed"
  const hasCommits = status === "succeeded" || delivery !== undefined
  const isDelivered = delivery !== undefined && !isKept(delivery)
  return isSettled && !isLost && (request.repository === undefined || !hasCommits || isDelivered)
}

/** Returns the complete record of a run that has ended, or `undefined` if later steps have to wait for it. */
const completed = (keeper: Keeper, run: KeeperRun, task: RunTask) => {
  if (isComplete(run, task)) return Effect.succeed(run)
  // Only its audit may be read any moment.
  if (!isComplete({ ...run, isSettled: true }, task)) return Effect.succeed(undefined)
  return keeper.describe(task.runId).pipe(
    Effect.repeat({
      schedule: Schedule.upTo(soon, { duration: Duration.seconds(completeSecondsMax) }),
      until: (found) => found === undefined || isComplete(found, task)
    }),
    Effect.andThen(keeper.describe(task.runId)),
    Effect.map((found) => (found !== undefined && isComplete(found, task) ? found : undefined)),
    Effect.orElseSucceed(() => undefined)
  )
}

/** Returns a run that has ended and whose audit was read, or what is known of it when the time is over. */
const settled = (keeper: Keeper, runId: string) =>
  keeper.describe(runId).pipe(
    Effect.repeat({
      schedule: Schedule.upTo(soon, { duration: Duration.seconds(settledSecondsMax) }),
      until: (run) => run === undefined || (isOver(run) && run.isSettled)
    }),
    Effect.andThen(keeper.describe(runId))
  )

const reportOf = (
  { branch, delivery, exitCode, pullRequestUrl, reason, runId, spend, status }: KeeperRun,
  facts: Pick<AttemptReport, "attempt" | "host" | "lastEventId">
): AttemptReport => ({
  runId,
  ...facts,
  status,
  spend,
  ...(reason === undefined ? {} : { reason }),
  ...(exitCode === undefined ? {} : { exitCode }),
  ...(delivery === undefined ? {} : { delivery }),
  ...(branch === undefined ? {} : { branch }),
  ...(pullRequestUrl === undefined ? {} : { pullRequestUrl })
})
