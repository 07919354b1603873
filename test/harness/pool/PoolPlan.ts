/**
 * A seeded plan of runs through a pool: which run asks for what, and what happens to the pool then. Data only.
 *
 * The same seed makes the same plan. How it coincides with the starts of sandboxes differs each time.
 */
import { Effect, Random } from "effect"

/**
 * How a run asks: `waiting` and `directory` can be served by a waiting sandbox. `long` must start cold, because of the
 * size of the environment. The others must be refused: for a limit, an image or a network.
 */
export type Kind = "waiting" | "directory" | "long" | "bad-limit" | "no-image" | "no-network"

export interface PlannedRun {
  readonly index: number
  readonly kind: Kind
  readonly exitCode: number
  /** Whether this run starts only when a sandbox waits. The others may find none. */
  readonly isPatient: boolean
  /** Share in [0, 1) that selects the waiting sandbox to kill before this run starts. */
  readonly kills?: number
  /** Whether the image is replaced before this run starts. */
  readonly replacesImage: boolean
}

const kindOf = (part: number): Kind => {
  if (part < 0.76) return "waiting"
  if (part < 0.84) return "directory"
  if (part < 0.88) return "long"
  if (part < 0.92) return "bad-limit"
  return part < 0.96 ? "no-image" : "no-network"
}

export const make = (options: {
  readonly seed: string
  readonly runs: number
}): Effect.Effect<ReadonlyArray<PlannedRun>> =>
  Effect.forEach(
    Array.from({ length: options.runs }, (_, index) => index),
    Effect.fnUntraced(function* (index) {
      const kind = kindOf(yield* Random.next)
      const exitCode = yield* Random.nextIntBetween(0, 9)
      const [kill, victim] = [yield* Random.next, yield* Random.next]
      return {
        index,
        kind,
        exitCode,
        isPatient: (yield* Random.next) < 0.7,
        ...(kill < 0.12 ? { kills: victim } : {}),
        replacesImage: (yield* Random.next) < 0.04
      }
    })
  ).pipe(Random.withSeed(options.seed))
