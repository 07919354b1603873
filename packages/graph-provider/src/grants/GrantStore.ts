/**
 * Port that stores grants and finds the grant of a token.
 *
 * Lookups also return revoked and expired grants. Only `ExecutionGrant.check` decides whether a grant is valid.
 *
 * A browser does not keep a token, but the secret of a sign-in, which ends sooner than the grant.
 */
import { Clock, Context, Effect, Layer, type Redacted, Ref } from "effect"
import type { ExecutionGrant } from "./ExecutionGrant.ts"
import * as GrantToken from "./GrantToken.ts"
import * as MemorySignIns from "../internal/MemorySignIns.ts"
import type { GrantStoreUnavailable, GrantRefused } from "./GrantError.ts"
import type { GrantInput } from "./GrantDraft.ts"
import { listedMax, type IssuedGrant, draft } from "./GrantDraft.ts"

export class GrantStore extends Context.Service<
  GrantStore,
  {
    /** Issues a new grant, with a new ID and a new token. */
    readonly issue: (input: GrantInput) => Effect.Effect<IssuedGrant, GrantRefused | GrantStoreUnavailable>
    readonly find: (grantId: string) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
    /** Finds the grant of a token. Returns `undefined` if the token belongs to no grant. */
    readonly authenticate: (
      token: Redacted.Redacted<string>
    ) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
    /**
     * Revokes a grant permanently. A repeated call keeps the time of the first. Returns the grant, or `undefined` if it
     * does not exist.
     */
    readonly revoke: (grantId: string) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
    /** The newest first, at most {@link listedMax}. */
    readonly list: Effect.Effect<ReadonlyArray<ExecutionGrant>, GrantStoreUnavailable>
    /**
     * Opens a sign-in of a grant for a number of seconds, and returns its secret, of which only the hash is stored.
     * Removes sign-ins that have expired, and the oldest of the grant above `GrantToken.signInsPerGrantMax`.
     */
    readonly openSignIn: (
      grantId: string,
      seconds: number
    ) => Effect.Effect<Redacted.Redacted<string>, GrantStoreUnavailable>
    /** Finds the grant of a sign-in. Returns `undefined` if it has ended, or never existed. */
    readonly authenticateSignIn: (
      secret: Redacted.Redacted<string>
    ) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
    /** Ends a sign-in. Does nothing if it has ended. */
    readonly closeSignIn: (secret: Redacted.Redacted<string>) => Effect.Effect<void, GrantStoreUnavailable>
    /** Grants of one account, also revoked and expired ones. The newest first, at most {@link listedMax}. */
    readonly ofAccount: (asked: {
      readonly billingAccountId: string
      /** ID of the last grant of the page before. Nothing follows a grant of another account. */
      readonly after?: string | undefined
      readonly limit: number
    }) => Effect.Effect<ReadonlyArray<ExecutionGrant>, GrantStoreUnavailable>
  }
>()("@cogni/sandbox-graph-provider/GrantStore") {}

const makeMemory = Effect.gen(function* () {
  const grants = yield* Ref.make<ReadonlyMap<string, { grant: ExecutionGrant; tokenHash: string }>>(new Map())
  const find = (grantId: string) => Effect.map(Ref.get(grants), (all) => all.get(grantId)?.grant)
  return GrantStore.of({
    issue: Effect.fn("GrantStore.issue")(function* (input) {
      const { grant, token, tokenHash } = yield* draft(input)
      yield* Ref.update(grants, (all) => new Map(all).set(grant.id, { grant, tokenHash }))
      return { grant, token }
    }),
    find,
    ...MemorySignIns.make(find, GrantToken.signInsPerGrantMax),
    authenticate: Effect.fn("GrantStore.authenticate")(function* (token) {
      const tokenHash = yield* GrantToken.hash(token)
      return [...(yield* Ref.get(grants)).values()].find((kept) => kept.tokenHash === tokenHash)?.grant
    }),
    revoke: Effect.fn("GrantStore.revoke")(function* (grantId) {
      const revokedAt = new Date(yield* Clock.currentTimeMillis)
      return yield* Ref.modify(grants, (all) => {
        const kept = all.get(grantId)
        if (kept === undefined) return [undefined, all]
        const grant = { ...kept.grant, revokedAt: kept.grant.revokedAt ?? revokedAt }
        return [grant, new Map(all).set(grantId, { ...kept, grant })]
      })
    }),
    list: Effect.map(Ref.get(grants), (all) =>
      [...all.values()]
        .toReversed()
        .map(({ grant }) => grant)
        .slice(0, listedMax)
    ),
    ofAccount: ({ after, billingAccountId, limit }) =>
      Effect.map(Ref.get(grants), (all) => {
        const own = [...all.values()]
          .toReversed()
          .map(({ grant }) => grant)
          .filter((grant) => grant.billingAccountId === billingAccountId)
        const from = after === undefined ? 0 : own.findIndex(({ id }) => id === after) + 1
        return after !== undefined && from === 0 ? [] : own.slice(from, from + Math.min(limit, listedMax))
      })
  })
})

export const layerMemory: Layer.Layer<GrantStore> = Layer.effect(GrantStore, makeMemory)
