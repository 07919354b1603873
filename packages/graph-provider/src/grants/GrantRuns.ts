/**
 * Counts the active runs of each grant, to limit how many run at the same time.
 *
 * The count covers all graph providers of this process. A slot is taken before any resource of a run is created, and
 * released when all of them are removed.
 */
import { Context, Effect, Schema, type Scope } from "effect"

/** The grant has reached its limit of concurrent runs. */
export class GrantRunsExhausted extends Schema.TaggedError<GrantRunsExhausted>()("GrantRunsExhausted", {
  grantId: Schema.String,
  concurrentRunsMax: Schema.Int
}) {
  override get message(): string {
    return `grant ${this.grantId} has reached its limit of ${this.concurrentRunsMax} concurrent runs. Try again when one has ended`
  }
}

export interface GrantRunsShape {
  /** Takes a slot for one more run, until the scope closes. */
  readonly claim: (
    grantId: string,
    concurrentRunsMax: number | undefined
  ) => Effect.Effect<void, GrantRunsExhausted, Scope.Scope>
}

export const make = (): GrantRunsShape => {
  const underWay = new Map<string, number>()
  const add = (grantId: string, difference: number) => {
    const count = (underWay.get(grantId) ?? 0) + difference
    if (count === 0) underWay.delete(grantId)
    else underWay.set(grantId, count)
  }
  return {
    claim: (grantId, concurrentRunsMax) =>
      Effect.asVoid(
        Effect.acquireRelease(
          Effect.suspend(() => {
            if (concurrentRunsMax !== undefined && (underWay.get(grantId) ?? 0) >= concurrentRunsMax) {
              return Effect.fail(new GrantRunsExhausted({ grantId, concurrentRunsMax }))
            }
            add(grantId, 1)
            return Effect.void
          }),
          () => Effect.sync(() => add(grantId, -1))
        )
      )
  }
}

/** The counter of this process, unless another one is provided. */
export const GrantRuns = Context.Reference<GrantRunsShape>("@cogni/sandbox-graph-provider/GrantRuns", {
  defaultValue: make
})

/** Seconds after which to retry: the end of a run cannot be predicted. */
export const retrySeconds = 5
