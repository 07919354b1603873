/**
 * Removals that no run waits for: of containers in which no process is left but their first.
 *
 * The engine takes long to remove a container. Those of at most {@link removalsMax} runs are removed at the same time,
 * and with more, runs wait for their own. The end of the runtime waits for all of them. If this process is killed,
 * the reaper finds what is left.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Cause, Deferred, Effect, Fiber, type Scope } from "effect"

/** Most runs whose containers are being removed while none of them waits. */
export const removalsMax = 16

/** How long the end of the runtime, or a question about a run, waits for removals. The reaper removes what is left. */
const waitSecondsMax = 30

export interface Removals {
  /** Removes the container of a run. Returns at once, unless too many are being removed. Never fails. */
  readonly start: (runId: RunId, removal: Effect.Effect<void>) => Effect.Effect<void>
  /** Waits until no container of a run is being removed. */
  readonly settled: (runId: RunId) => Effect.Effect<void>
}

interface Removal {
  readonly runId: RunId
  readonly fiber: Fiber.Fiber<void>
  /** Completed when something waits for this removal. */
  readonly now: Deferred.Deferred<void>
}

/** `quiet` waits for a moment in which removals disturb no run. A removal that something waits for does not. */
export const make = Effect.fnUntraced(function* (
  quiet: Effect.Effect<void>
): Effect.fn.Return<Removals, never, Scope.Scope> {
  const underWay = new Set<Removal>()
  let isClosed = false

  /** Waits for removals, and returns whether all of them have ended. */
  const awaitAll = (removals: ReadonlyArray<Removal>) =>
    Effect.forEach(
      removals,
      ({ fiber, now }) => Effect.andThen(Deferred.succeed(now, undefined), Fiber.await(fiber)),
      { concurrency: "unbounded", discard: true }
    ).pipe(
      // Only inside of the time limit: the fiber that closes the runtime may have been interrupted.
      Effect.interruptible,
      Effect.timeoutOption(`${waitSecondsMax} seconds`),
      Effect.map(({ _tag }) => _tag === "Some")
    )

  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      isClosed = true
      return Effect.flatMap(awaitAll([...underWay]), (isDone) =>
        isDone
          ? Effect.void
          : Effect.logWarning(
              `${underWay.size} containers were not removed within ${waitSecondsMax} s; left to the reaper`
            )
      )
    })
  )

  return {
    start: (runId, removal) =>
      Effect.uninterruptible(
        Effect.gen(function* () {
          const logged = Effect.catchCause(removal, (cause) =>
            Effect.logWarning(
              "the container of a run could not be removed; left to the reaper",
              Cause.squash(cause)
            )
          )
          const runs = new Set([...underWay].map((other) => other.runId))
          // After the end of the runtime, nothing else would wait for it.
          if (isClosed || (!runs.has(runId) && runs.size >= removalsMax)) return yield* logged
          const now = yield* Deferred.make<void>()
          // Detached, because the scope of the run closes before it ends.
          const fiber = yield* Effect.forkDetach(
            Effect.andThen(Effect.raceFirst(quiet, Deferred.await(now)), logged),
            { startImmediately: true }
          )
          const one: Removal = { runId, fiber, now }
          underWay.add(one)
          fiber.addObserver(() => underWay.delete(one))
        })
      ),
    settled: (runId) =>
      Effect.suspend(() => Effect.asVoid(awaitAll([...underWay].filter((one) => one.runId === runId))))
  }
})
