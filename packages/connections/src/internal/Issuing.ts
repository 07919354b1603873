/**
 * Asks an issuer for a credential, and makes it invalid when its use is over.
 *
 * The issuer is asked in a fiber of its own. A caller that is interrupted or has waited for too long leaves, but the
 * credential that its issuer then creates is still made invalid.
 */
import { Cause, Duration, Effect, Exit, Fiber } from "effect"
import type { Connection } from "../Connection.ts"
import { SourceUnavailable } from "../ConnectionReason.ts"
import type { Issued, SourceProblem } from "../CredentialSource.ts"
import { leavingSecondsMax, lateSecondsMax, sourceSecondsMax } from "./LeaseLimits.ts"

/**
 * Waits for a credential. Call it in an uninterruptible region, with its `restore`: what it returns must be made
 * invalid by the caller.
 */
export const taken = <A extends { readonly issued: Issued }>(
  issue: Effect.Effect<A, SourceProblem>,
  { name }: Connection,
  restore: <B, E>(effect: Effect.Effect<B, E>) => Effect.Effect<B, E>
): Effect.Effect<A, SourceProblem> =>
  Effect.flatMap(Effect.forkDetach(Effect.interruptible(issue), { startImmediately: true }), (fiber) =>
    restore(
      Effect.timeoutOrElse(Fiber.join(fiber), {
        duration: Duration.seconds(sourceSecondsMax),
        orElse: () => Effect.fail(slow(name))
      })
    ).pipe(Effect.onError((cause) => abandoned(fiber, Cause.hasInterrupts(cause))))
  )

/**
 * Makes a credential invalid whose caller has left. A caller that was interrupted waits for that shortly, because
 * its process may end; a later answer is handled after the caller has gone.
 */
const abandoned = <A extends { readonly issued: Issued }>(
  fiber: Fiber.Fiber<A, SourceProblem>,
  isLeaving: boolean
): Effect.Effect<void> =>
  Fiber.await(fiber).pipe(
    Effect.timeoutOption(Duration.seconds(lateSecondsMax)),
    Effect.flatMap((answer) =>
      answer._tag === "None"
        ? Effect.asVoid(Fiber.interrupt(fiber))
        : Exit.isSuccess(answer.value)
          ? dropped(answer.value.value.issued)
          : Effect.void
    ),
    Effect.interruptible,
    Effect.forkDetach({ startImmediately: true }),
    Effect.flatMap((late) =>
      isLeaving
        ? // Also in a fiber of its own: the caller's is interrupted already.
          Effect.flatMap(
            Effect.forkDetach(
              Effect.interruptible(
                Effect.timeoutOption(Fiber.join(late), Duration.seconds(leavingSecondsMax))
              ),
              { startImmediately: true }
            ),
            Fiber.join
          )
        : Effect.void
    ),
    Effect.asVoid
  )

/**
 * Makes a credential invalid whose use is over. In a fiber of its own: the end of a run that was interrupted must not
 * interrupt this, and must not wait for long.
 */
export const dropped = ({ revoke = Effect.void }: Issued): Effect.Effect<void> =>
  Effect.interruptible(revoke).pipe(
    Effect.timeoutOption(Duration.seconds(sourceSecondsMax)),
    Effect.asVoid,
    Effect.catch(({ message }) =>
      Effect.logWarning(`a credential could not be made invalid, and expires by itself: ${message}`)
    ),
    Effect.forkDetach({ startImmediately: true }),
    Effect.flatMap(Fiber.join)
  )

/** Names why there is no credential, for the audit. */
export const reasonOf = (cause: Cause.Cause<SourceProblem>): string => {
  const failure = Cause.findErrorOption(cause)
  return failure._tag === "Some" ? failure.value._tag : Cause.hasDies(cause) ? "Defect" : "Interrupted"
}

const slow = (connection: string) =>
  new SourceUnavailable({
    connection,
    detail: `its issuer did not answer within ${sourceSecondsMax} s`,
    remedy: "Try again"
  })
