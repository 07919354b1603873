/**
 * Holds the key of a run for as long as its scope is open.
 *
 * Creating and deleting run in fibers that outlive the run and that nothing interrupts: an aborted request may still
 * create a key. So a run neither waits for them at its end, nor leaves a key behind when it is interrupted. Closing the
 * gateway waits for all of them. Each is bounded in time. A key that cannot be deleted, because the upstream is
 * gone, is deleted later: it would open the run's models until it expires. A key whose creation had no answer is
 * deleted twice: a busy upstream may create it after it was asked to delete it.
 */
import { Clock, Deferred, Duration, Effect, Fiber, Result, Schedule, type Scope } from "effect"
import { type RunKey, RunKeyFailed, type RunKeys, type RunKeyTerms } from "../../RunKeys.ts"

export interface RunKeyLease {
  readonly alias: string
  /** The key. Waits until it exists. */
  readonly key: Effect.Effect<RunKey, RunKeyFailed>
}

export interface RunKeyLeases {
  /** Begins to create a key. Closing the scope deletes it. */
  readonly open: (terms: RunKeyTerms) => Effect.Effect<RunKeyLease, never, Scope.Scope>
  /** Keys that could not be deleted so far, and keys that may still be created, each counted once. */
  readonly leftTotal: () => number
}

/** A key that was not deleted, and why. */
interface Left {
  readonly detail: string
  readonly expiresAt: string | undefined
}

/** How long the creation of a key may take. */
export const createSecondsMax = 20

/** How long one request to delete a key may take. */
const deleteSecondsMax = 10

/** How often and how fast a deletion is tried again. */
const again = { schedule: Schedule.exponential("500 millis", 3), times: 2 }

/** Seconds after which the keys that were not deleted are tried again, for as long as the gateway is open. */
const laterSeconds = 60

/** Maximum number of keys that are tried again. Further ones are left to the next start. */
const laterMax = 1000

/** Says what becomes of a key that is not tried again. */
const remains = (expiresAt: string | undefined): string =>
  `${expiresAt === undefined ? "If it exists, it expires" : `It expires at ${expiresAt}`}, and the next start on this host deletes it.`

/** Creates the leases of a gateway. Closing the scope waits until their keys are deleted. */
export const make = Effect.fnUntraced(function* (
  keys: RunKeys["Service"]
): Effect.fn.Return<RunKeyLeases, never, Scope.Scope> {
  const jobs = new Set<Fiber.Fiber<void>>()
  const left = new Map<string, Left>()
  /** Keys that may have been created after their deletion, and when they were deleted, in milliseconds. */
  const doubtful = new Map<string, number>()
  let untriedTotal = 0
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      yield* Fiber.awaitAll([...jobs])
      const both = Effect.all([removeDoubtful(0), removeLeft], { concurrency: 2 })
      yield* Effect.timeoutOption(Effect.interruptible(both), Duration.seconds(deleteSecondsMax))
      for (const alias of [...doubtful.keys()].filter((doubted) => !left.has(doubted)))
        yield* Effect.logWarning(
          `The key ${alias} may still be created: its creation had no answer. ${remains(undefined)}`
        )
      for (const [alias, { detail, expiresAt }] of left)
        yield* Effect.logWarning(`The key ${alias} was not deleted: ${detail}. ${remains(expiresAt)}`)
    })
  )

  /** Runs a job that nothing interrupts. */
  const inBackground = (job: Effect.Effect<void>) =>
    Effect.uninterruptible(
      Effect.flatMap(Effect.forkDetach(Effect.interruptible(job)), (fiber) =>
        Effect.sync(() => {
          jobs.add(fiber)
          fiber.addObserver(() => jobs.delete(fiber))
        })
      )
    )

  /** Deletes a key, or keeps it to be tried again. Returns whether it did either. */
  const remove = (alias: string, expiresAt: string | undefined): Effect.Effect<boolean> =>
    inTime(keys.remove(alias), "delete", deleteSecondsMax).pipe(
      Effect.retry({ ...again, while: ({ isRetryable }) => isRetryable }),
      Effect.as(true),
      Effect.catch(({ detail }) => {
        const isTried = left.has(alias) || left.size < laterMax
        if (isTried) left.set(alias, { detail, expiresAt })
        return Effect.as(
          Effect.logWarning(
            `The key ${alias} was not deleted: ${detail}. ` +
              (isTried ? `It is tried again every ${laterSeconds} s.` : remains(expiresAt))
          ),
          isTried
        )
      })
    )

  const removeOnce = (alias: string, expiresAt: string) =>
    Effect.map(remove(alias, expiresAt), (isKept) => {
      if (!isKept) untriedTotal += 1
    })

  /** Tries the keys that were not deleted once more. One that has expired opens nothing. */
  const removeLeft = Effect.suspend(() =>
    Effect.forEach(
      [...left],
      Effect.fnUntraced(function* ([alias, { expiresAt }]) {
        const isExpired = expiresAt !== undefined && Date.parse(expiresAt) < (yield* Clock.currentTimeMillis)
        const removed = yield* Effect.result(inTime(keys.remove(alias), "delete", deleteSecondsMax))
        if (isExpired || Result.isSuccess(removed)) left.delete(alias)
        else left.set(alias, { expiresAt, detail: removed.failure.detail })
      }),
      { concurrency: 4, discard: true }
    )
  )

  /** Deletes a key now, and once more later, because it may be created in between. */
  const removeTwice = (alias: string) =>
    Effect.andThen(
      remove(alias, undefined),
      Effect.map(Clock.currentTimeMillis, (now) => {
        if (doubtful.size < laterMax) doubtful.set(alias, now)
        else if (!left.has(alias)) untriedTotal += 1
      })
    )

  /** Deletes the doubtful keys once more whose deletion is at least this old. A younger one stays doubtful. */
  const removeDoubtful = Effect.fnUntraced(function* (ageSecondsMin: number) {
    const now = yield* Clock.currentTimeMillis
    const isOld = (at: number, seconds: number) => now - at >= seconds * 1000
    yield* Effect.forEach(
      [...doubtful].filter(([alias, at]) => !left.has(alias) && isOld(at, ageSecondsMin)),
      ([alias, at]) =>
        Effect.map(remove(alias, undefined), (isKept) => {
          if (!isOld(at, laterSeconds)) return
          doubtful.delete(alias)
          if (!isKept) untriedTotal += 1
        }),
      { concurrency: 4, discard: true }
    )
  })
  yield* Effect.sleep(Duration.seconds(laterSeconds)).pipe(
    Effect.andThen(removeDoubtful(laterSeconds)),
    Effect.andThen(removeLeft),
    Effect.forever,
    Effect.forkScoped
  )

  return {
    leftTotal: () => new Set([...left.keys(), ...doubtful.keys()]).size + untriedTotal,
    open: Effect.fnUntraced(function* (terms) {
      const alias = keys.aliasOf(terms.runId)
      const created = yield* Deferred.make<RunKey, RunKeyFailed>()
      yield* Effect.acquireRelease(
        inBackground(
          Effect.asVoid(Deferred.into(inTime(keys.create(alias, terms), "create", createSecondsMax), created))
        ),
        () =>
          inBackground(
            Effect.flatMap(Effect.result(Deferred.await(created)), (result) =>
              Result.isSuccess(result)
                ? removeOnce(alias, result.success.expiresAt)
                : result.failure.isUncertain
                  ? removeTwice(alias)
                  : Effect.void
            )
          )
      )
      return { alias, key: Deferred.await(created) }
    })
  }
})

/** Bounds an operation, and turns its defects into failures: a defect's text may contain a key. */
const inTime = <A>(
  operation: Effect.Effect<A, RunKeyFailed>,
  name: RunKeyFailed["operation"],
  secondsMax: number
): Effect.Effect<A, RunKeyFailed> => {
  const failed = (detail: string, remedy: string, isRetryable: boolean) =>
    Effect.fail(new RunKeyFailed({ operation: name, detail, remedy, isRetryable, isUncertain: true }))
  return operation.pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(secondsMax),
      orElse: () =>
        failed(
          `there was no answer within ${secondsMax} s`,
          "Check LiteLLM and its database, then try again",
          true
        )
    }),
    Effect.catchDefect(() => failed("the service that issues keys has a defect", "Report this", false))
  )
}
