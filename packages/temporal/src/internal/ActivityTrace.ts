/** The trace of an activity: the spans of its steps, and the requests to the keeper, are parts of it. */
import { Context as ActivityContext } from "@temporalio/activity"
import { Effect, Tracer } from "effect"
import type { ActivityInterceptorsFactory } from "@temporalio/worker"
import { type Parent, parentIn } from "./TraceHeader.ts"

const parents = new WeakMap<ActivityContext, Parent>()

/** Notes the span that the workflow has passed on. */
export const interceptor: ActivityInterceptorsFactory = (context) => ({
  inbound: {
    execute: (input, next) => {
      const parent = parentIn(input.headers)
      if (parent !== undefined) parents.set(context, parent)
      return next(input)
    }
  }
})

/** Makes the current activity a span. */
export const traced = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  const context = ActivityContext.current()
  const parent = parents.get(context)
  const activity = context.info.activityType
  return effect.pipe(
    Effect.withSpan(`RunWorker.${activity}`, {
      kind: "consumer",
      ...(parent === undefined
        ? { root: true }
        : { parent: Tracer.externalSpan({ ...parent, sampled: true }) })
    })
  )
}
