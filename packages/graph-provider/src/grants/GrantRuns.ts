/**
 * Runs under way by grant, so that a grant can bound how many it has at one time.
 *
 * Counted in this process, over all providers of graphs in it. A place is taken before anything is made for a run, and
 * given back when nothing of the run is left.
 */
import { Context, Effect, Schema, type Scope } from "effect"

/** A grant has as many runs under way as it may. */
export class GrantRunsExhausted extends Schema.TaggedError<GrantRunsExhausted>()("GrantRunsExhausted", {
  grantId: Schema.String,
  concurrentRunsMax: Schema.Int
}) {
  override get message(): string {
    return `grant ${this.grantId} may have ${this.concurrentRunsMax} runs under way at one time, and has them. Try again when one has ended`
  }
}

export interface GrantRunsShape {
  /** A place for one more run, until the scope closes. */
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

/** The one count of this process, unless another is provided. */
export const GrantRuns = Context.Reference<GrantRunsShape>("@cogni/sandbox-graph-provider/GrantRuns", {
  defaultValue: make
})

/** Seconds after which to ask again: when a run ends is not known. */
export const retrySeconds = 5
