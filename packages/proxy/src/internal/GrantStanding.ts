/**
 * Whether the grant of a run still stands while its tool call waits for an approval. A call that a person approves
 * after the grant was revoked does not run, also if its tool needs no credential.
 */
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Clock, Effect, Schedule } from "effect"

/** Time between two readings of a grant, in seconds. */
const watchSeconds = 5

const gone = new Tool.ToolFailed({
  code: "policy_denied",
  detail: "the grant of this run was revoked or has expired, so its calls are no longer approved"
})

const unknown = new Tool.ToolFailed({
  code: "unavailable",
  detail: "the grant of this run cannot be read now, so the approved call did not run. Try again later"
})

/** Fails unless the grant stands. A run without a user, such as one of the command, needs none. */
export const check: Effect.Effect<void, Tool.ToolFailed> = Effect.gen(function* () {
  const user = yield* ConnectionUser
  if (user === undefined) return
  const { expiresAt, revokedAt } = yield* Effect.mapError(user.authority, ({ _tag }) =>
    _tag === "ConnectionDenied" ? gone : unknown
  )
  const now = yield* Clock.currentTimeMillis
  if (revokedAt !== null || (expiresAt !== null && expiresAt.getTime() <= now)) return yield* gone
})

/** Fails once the grant does not stand. One that cannot be read is read again. */
export const lost: Effect.Effect<never, Tool.ToolFailed> = check.pipe(
  Effect.catch((error) => (error === unknown ? Effect.void : Effect.fail(error))),
  Effect.repeat(Schedule.spaced(`${watchSeconds} seconds`)),
  Effect.andThen(Effect.never)
)
