/**
 * Connections that a grant opens, and the user on whose behalf they are used.
 *
 * A grant without rules opens the host's own connections, for git and for its repositories. With rules, it opens only
 * the connections that they name. Its repositories and tools limit every rule.
 */
import type { ConnectionAuthority, ConnectionRule } from "@cogni/sandbox-connections/ConnectionDecision"
import { ConnectionDenied, ConnectionStoreUnavailable } from "@cogni/sandbox-connections/ConnectionReason"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import { Effect } from "effect"
import type { ExecutionGrant } from "./ExecutionGrant.ts"
import type { GrantStore } from "./GrantStore.ts"

/** The rules of a grant that has none. */
export const hostRules: ReadonlyArray<ConnectionRule> = [
  { connection: "host/*", purposes: ["fetch", "push", "pull_request"] }
]

/** Returns the part of a grant that matters for connections. */
export const authorityOf = ({
  billingAccountId,
  expiresAt,
  id,
  permissions: { connections = hostRules, repositories = [], tools = [] },
  revokedAt
}: ExecutionGrant): ConnectionAuthority => ({
  grantId: id,
  billingAccountId,
  rules: connections,
  repositories,
  tools,
  expiresAt,
  revokedAt
})

/** A caller with a grant, and the run that it asked for. */
export interface GrantUser {
  readonly grantId: string
  readonly billingAccountId: string
  readonly runId: string
}

/** Returns the user of a grant, which is read again for each use. */
export const userOf = (
  grants: Pick<GrantStore["Service"], "find">,
  { billingAccountId, grantId, runId }: GrantUser
): ConnectionUser => ({
  billingAccountId,
  runId,
  authority: Effect.gen(function* () {
    const grant = yield* Effect.mapError(
      grants.find(grantId),
      () =>
        new ConnectionStoreUnavailable({
          detail: "cannot be used, because the grant store does not answer",
          remedy: "Check the database and the connection to it, then try again"
        })
    )
    if (grant !== undefined) return authorityOf(grant)
    return yield* new ConnectionDenied({ grantId, purpose: "anything", reason: "grant_revoked" })
  })
})

/** Runs an effect on behalf of a grant. */
export const asUser =
  (grants: Pick<GrantStore["Service"], "find">, user: GrantUser) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.provideService(effect, ConnectionUser, userOf(grants, user))
