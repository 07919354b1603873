/** Marks spans of failed work with `error.type`, as the semantic conventions require. */
import { Cause, Effect, Exit } from "effect"
import type { Reason } from "../SandboxError.ts"
import { attribute } from "../Telemetry.ts"

/** Returns the reason of a failure, or `undefined` if the work succeeded or was only interrupted. */
export const errorTypeOf = (
  exit: Exit.Exit<unknown, Reason | { readonly reason: Reason }>
): string | undefined => {
  if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) return undefined
  const failure = exit.cause.reasons.find(Cause.isFailReason)
  if (failure === undefined) return "Defect"
  const { error } = failure
  return "reason" in error ? error.reason._tag : error._tag
}

/** Adds `error.type` to the current span if the work fails. */
export const marked = <A, E extends Reason | { readonly reason: Reason }, R>(
  work: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.onExit(work, (exit) => {
    const type = errorTypeOf(exit)
    return type === undefined ? Effect.void : Effect.annotateCurrentSpan(attribute.errorType, type)
  })
