/** Access to the stored secret of one connection: reads it, or exchanges it for the next one. */
import { named } from "@cogni/sandbox-core/Remedy"
import { Clock, Duration, Effect, Fiber, Schedule } from "effect"
import type { Connection } from "../Connection.ts"
import { SourceUnavailable } from "../ConnectionReason.ts"
import { sealedKinds } from "../ConnectionFields.ts"
import type { ConnectionStore } from "../ConnectionStore.ts"
import type { SourceUse } from "../CredentialSource.ts"
import type { SealFailed, SecretBox } from "../SecretBox.ts"
import { SecretUnreadable } from "./UseReasons.ts"

/** Longest time for which a secret is claimed, in seconds: longer than an exchange and its storage may take. */
const claimSecondsMax = 60

/** Longest wait for another claim, in seconds. */
const waitSecondsMax = 20

export const make = (
  store: ConnectionStore["Service"],
  box: SecretBox["Service"],
  connection: Connection
): Pick<SourceUse, "rotated" | "secret"> => {
  const { id: connectionId, means, name } = connection
  const unreadable = ({
    detail,
    isRetryable,
    remedy
  }: Pick<SealFailed, "detail" | "isRetryable" | "remedy">) =>
    isRetryable
      ? new SourceUnavailable({ connection: name, detail: `its secret ${detail}`, remedy })
      : new SecretUnreadable({ connection: name, detail, remedy })
  const secret = Effect.gen(function* () {
    const sealed = sealedKinds.has(means.kind) ? yield* store.secret(connectionId) : undefined
    if (sealed === undefined) {
      return yield* unreadable({
        isRetryable: false,
        detail: "is not stored",
        remedy: `Remove the connection and add it again (${named("ConnectionStore.add")})`
      })
    }
    return yield* Effect.mapError(box.open(connection, sealed), unreadable)
  })

  return {
    secret,
    rotated: (exchange) => {
      const claim = { connectionId, claimId: `claim-${crypto.randomUUID()}` }
      return Effect.acquireUseRelease(
        claimed(store, claim, name),
        () =>
          Effect.gen(function* () {
            const { next, value } = yield* Effect.flatMap(secret, exchange)
            if (next === undefined) return value
            const sealed = yield* Effect.mapError(box.seal(connection, next), unreadable)
            const isStored = yield* store.settle(claim, sealed)
            return isStored ? value : yield* busy(name)
          }),
        () => Effect.asVoid(Effect.option(store.settle(claim, undefined)))
      ).pipe(outliving)
    }
  }
}

/**
 * In a fiber of its own, which continues when the caller is interrupted: the issuer may accept only the next secret
 * from now on, so it must be stored. All of its steps have time limits.
 */
const outliving = <A, E>(exchange: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.flatMap(Effect.forkDetach(Effect.interruptible(exchange), { startImmediately: true }), Fiber.join)

/** Claims the secret. Waits for another claim for some time. */
const claimed = (
  store: ConnectionStore["Service"],
  claim: { readonly claimId: string; readonly connectionId: string },
  name: string
) =>
  Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const until = new Date(now + claimSecondsMax * 1000)
    const isOurs = yield* store.claim({ ...claim, now: new Date(now), until })
    if (!isOurs) return yield* busy(name)
  }).pipe(
    Effect.retry({
      while: ({ _tag }) => _tag === "SourceUnavailable",
      schedule: Schedule.spaced("250 millis").pipe(
        Schedule.upTo({ duration: Duration.seconds(waitSecondsMax) })
      )
    })
  )

const busy = (connection: string) =>
  Effect.fail(
    new SourceUnavailable({
      connection,
      detail: "another process is using its secret",
      remedy: "Try again in a moment"
    })
  )
