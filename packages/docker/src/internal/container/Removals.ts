/**
 * Removals that no run waits for: of containers in which no process is left but their first.
 *
 * The engine takes long to remove a container. At most {@link removalsMax} are removed at the same time without their
 * runs, and with more, runs wait for their own. The end of the runtime waits for all of them. If this process is killed,
 * the reaper finds what is left.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Cause, Effect, Fiber, type Scope } from "effect"

/** Most removals at the same time that no run waits for. */
export const removalsMax = 16

/** How long the end of the runtime, or a question about a run, waits for removals. The reaper removes what is left. */
const waitSecondsMax = 30

export interface Removals {
  /** Removes the container of a run. Returns at once, unless too many are being removed. Never fails. */
  readonly start: (runId: RunId, removal: Effect.Effect<void>) => Effect.Effect<void>
  /** Waits until no container of a run is being removed. */
  readonly settled: (runId: RunId) => Effect.Effect<void>
}

export const make: Effect.Effect<Removals, never, Scope.Scope> = Effect.gen(function* () {
  const underWay = new Map<Fiber.Fiber<void>, RunId>()

  /** Waits for removals, and returns whether all of them have ended. */
  const awaitAll = (fibers: ReadonlyArray<Fiber.Fiber<void>>) =>
    Effect.forEach(fibers, Fiber.await, { concurrency: "unbounded", discard: true }).pipe(
      // Only inside of the time limit: the fiber that closes the runtime may have been interrupted.
      Effect.interruptible,
      Effect.timeoutOption(`${waitSecondsMax} seconds`),
      Effect.map(({ _tag }) => _tag === "Some")
    )

  yield* Effect.addFinalizer(() =>
    Effect.flatMap(awaitAll([...underWay.keys()]), (isDone) =>
      isDone
        ? Effect.void
        : Effect.logWarning(
            `${underWay.size} containers were not removed within ${waitSecondsMax} s; left to the reaper`
          )
    )
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
          if (underWay.size >= removalsMax) return yield* logged
          // Detached, because the scope of the run closes before it ends.
          const fiber = yield* Effect.forkDetach(logged, { startImmediately: true })
          underWay.set(fiber, runId)
          fiber.addObserver(() => underWay.delete(fiber))
        })
      ),
    settled: (runId) =>
      Effect.suspend(() =>
        Effect.asVoid(awaitAll([...underWay].flatMap(([fiber, other]) => (other === runId ? [fiber] : []))))
      )
  }
})
