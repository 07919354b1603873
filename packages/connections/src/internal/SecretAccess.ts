/** Access to the stored secret of one connection: reads it, or exchanges it for the next one. */
import { named } from "@cogni/sandbox-core/Remedy"
import { Clock, Duration, Effect, Schedule } from "effect"
import { type Connection, sealedKinds } from "../Connection.ts"
import { SecretUnreadable, SourceUnavailable } from "../ConnectionError.ts"
import type { ConnectionStore } from "../ConnectionStore.ts"
import type { SourceUse } from "../CredentialSource.ts"
import type { SealFailed, SecretBox } from "../SecretBox.ts"

/** Longest time for which a secret is claimed, in seconds: longer than a source may take. */
export const claimSecondsMax = 60

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
    rotated: (exchange) =>
      Effect.gen(function* () {
        const claimId = `claim-${crypto.randomUUID()}`
        const now = yield* Clock.currentTimeMillis
        const claim = {
          connectionId,
          claimId,
          now: new Date(now),
          until: new Date(now + claimSecondsMax * 1000)
        }
        return yield* Effect.acquireUseRelease(
          Effect.flatMap(store.claim(claim), (isOurs) => (isOurs ? Effect.void : busy(name))).pipe(
            Effect.retry({
              while: ({ _tag }) => _tag === "SourceUnavailable",
              schedule: Schedule.spaced("250 millis").pipe(
                Schedule.upTo({ duration: Duration.seconds(waitSecondsMax) })
              )
            })
          ),
          () =>
            Effect.uninterruptibleMask((restore) =>
              Effect.gen(function* () {
                const { next, value } = yield* restore(Effect.flatMap(secret, exchange))
                if (next === undefined) return value
                // The issuer may accept only the next secret from now on.
                const sealed = yield* Effect.mapError(box.seal(connection, next), unreadable)
                const isStored = yield* store.settle(claim, sealed)
                return isStored ? value : yield* busy(name)
              })
            ),
          () => Effect.asVoid(Effect.option(store.settle(claim, undefined)))
        )
      })
  }
}

const busy = (connection: string) =>
  Effect.fail(
    new SourceUnavailable({
      connection,
      detail: "another process is using its secret",
      remedy: "Try again in a moment"
    })
  )
