/** Connects a run with its clone: the canaries planted in the sandbox are searched for in the clone. */
import * as Canary from "@cogni/sandbox-core/Canary"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Effect } from "effect"
import type { InClone, RepositoryPlace, RepositoryUse } from "../RepositoryUse.ts"

/** Runs `use` in a clone; without a clone, in the workspace of the spec. */
export const live = Effect.fnUntraced(function* <A extends RepositoryUse, E, R, D, E2, R2>(
  { canaries = "off" }: Pick<SandboxSpecInput, "canaries">,
  inClone: InClone<D, E2, R2> | undefined,
  use: (place: RepositoryPlace | undefined, began: Effect.Effect<void>) => Effect.Effect<A, E, R>
) {
  if (inClone === undefined) return { value: yield* use(undefined, Effect.void), delivery: undefined }
  const planted = canaries === "off" ? Canary.none : yield* Canary.plant
  return yield* inClone(planted.canaries, (place, began) =>
    Effect.provideService(use(place, began), Canary.Planting, Effect.succeed(planted))
  )
})
