/** What a run and its clone have in common: the canaries that are planted in the one are looked for in the other. */
import * as Canary from "@cogni/sandbox-core/Canary"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Effect } from "effect"
import type { InClone, RepositoryPlace, RepositoryUse } from "../Repositories.ts"

/** `use` in a clone; without one, in the workspace of the spec. */
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
