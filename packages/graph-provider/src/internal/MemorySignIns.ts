/** Sign-ins of browsers in memory, by the hash of their secret, the oldest first. */
import { Clock, Effect, type Redacted } from "effect"
import type { ExecutionGrant } from "../grants/ExecutionGrant.ts"
import * as GrantToken from "../grants/GrantToken.ts"

interface Kept {
  readonly grantId: string
  readonly expiresAtMillis: number
}

export const make = (
  find: (grantId: string) => Effect.Effect<ExecutionGrant | undefined>,
  perGrantMax: number
) => {
  const all = new Map<string, Kept>()

  const sweep = (nowMillis: number) => {
    for (const [hash, { expiresAtMillis }] of all) if (expiresAtMillis <= nowMillis) all.delete(hash)
  }
  const removeOldest = (grantId: string) => {
    const own = [...all].filter(([, kept]) => kept.grantId === grantId)
    for (const [hash] of own.slice(0, Math.max(0, own.length - perGrantMax))) all.delete(hash)
  }
  return {
    openSignIn: Effect.fn("GrantStore.openSignIn")(function* (grantId: string, seconds: number) {
      const nowMillis = yield* Clock.currentTimeMillis
      const secret = yield* GrantToken.generateSignIn
      sweep(nowMillis)
      all.set(yield* GrantToken.hash(secret), { grantId, expiresAtMillis: nowMillis + seconds * 1000 })
      removeOldest(grantId)
      return secret
    }),
    authenticateSignIn: Effect.fn("GrantStore.authenticateSignIn")(function* (
      secret: Redacted.Redacted<string>
    ) {
      const kept = all.get(yield* GrantToken.hash(secret))
      const isOpen = kept !== undefined && kept.expiresAtMillis > (yield* Clock.currentTimeMillis)
      return isOpen ? yield* find(kept.grantId) : undefined
    }),
    closeSignIn: Effect.fn("GrantStore.closeSignIn")(function* (secret: Redacted.Redacted<string>) {
      all.delete(yield* GrantToken.hash(secret))
    })
  }
}
