/**
 * On whose behalf connections are used: the account, and the grant that allows it.
 *
 * The code that admits a run provides it around the run. Everything below, such as the git relay, then uses the
 * connections of that account and no other.
 */
import { Context, type Effect } from "effect"
import type { ConnectionAuthority } from "./ConnectionDecision.ts"
import type { ConnectionDenied, ConnectionStoreUnavailable } from "./ConnectionReason.ts"

export interface ConnectionUser {
  readonly billingAccountId: string
  readonly runId?: string | undefined
  /**
   * Reads the grant. It is read for each use and again while a lease is open, so that a revoked grant stops a run that
   * is under way.
   */
  readonly authority: Effect.Effect<ConnectionAuthority, ConnectionDenied | ConnectionStoreUnavailable>
}

/** Default: no user, so that every use is denied. */
export const ConnectionUser = Context.Reference<ConnectionUser | undefined>(
  "@cogni/sandbox-connections/ConnectionUser",
  { defaultValue: () => undefined }
)
