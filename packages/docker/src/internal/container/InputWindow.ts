/**
 * Flow control of a command's streamed input: how many bytes the supervisor accepts, and whether the command still
 * reads.
 *
 * The supervisor grants credit. It runs inside the sandbox, so credit beyond the window violates the protocol.
 */
import { Deferred, Effect, Latch } from "effect"
import { windowBytes } from "./SupervisorFrame.ts"

export interface InputWindow {
  /** Adds credit. Returns whether the result is within the window. */
  readonly grant: (bytes: number) => boolean
  /** Waits until this many bytes are accepted, and spends the credit for them. */
  readonly spend: (bytes: number) => Effect.Effect<void>
  /** Settles with the first credit: the supervisor can stream. */
  readonly opened: Effect.Effect<void>
  /** Ends the input. */
  readonly close: Effect.Effect<void>
  readonly closed: Effect.Effect<void>
}

export const make = (): InputWindow => {
  const opened = Deferred.makeUnsafe<void>()
  const closed = Deferred.makeUnsafe<void>()
  const granted = Latch.makeUnsafe(false)
  let creditBytes = 0

  const spend = (bytes: number): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (creditBytes >= bytes) {
        creditBytes -= bytes
        return Effect.void
      }
      granted.closeUnsafe()
      return Effect.andThen(granted.await, spend(bytes))
    })

  return {
    grant: (bytes) => {
      creditBytes += bytes
      Deferred.doneUnsafe(opened, Effect.void)
      granted.openUnsafe()
      return creditBytes <= windowBytes
    },
    spend,
    opened: Deferred.await(opened),
    close: Effect.asVoid(Deferred.succeed(closed, undefined)),
    closed: Deferred.await(closed)
  }
}
