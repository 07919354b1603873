/**
 * Port that stores grants and finds the grant of a token.
 *
 * Lookups also return revoked and expired grants. Only `ExecutionGrant.check` decides whether a grant is valid.
 *
 * A browser does not keep a token, but the secret of a sign-in, which ends sooner than the grant.
 */
import { describeIssue, issuesOf } from "@cogni/sandbox-core/SandboxSpec"
import { Clock, Context, Effect, Layer, type Redacted, Ref, Schema } from "effect"
import { ExecutionGrant } from "./ExecutionGrant.ts"
import { GrantPermissions, safeDefault } from "./GrantPermissions.ts"
import * as GrantToken from "./GrantToken.ts"
import * as MemorySignIns from "../internal/MemorySignIns.ts"

/** Maximum number of grants in a list. */
export const listedMax = 1000

const { allowSandbox, billingAccountId, expiresAt, scopes, userId } = ExecutionGrant.fields

/** A grant to issue: what it allows, to whom, until when. */
export const GrantInput = Schema.Struct({
  userId,
  billingAccountId,
  scopes,
  allowSandbox,
  expiresAt,
  /** Default: no tools, no repositories, and the models that the host offers. */
  permissions: Schema.optionalKey(GrantPermissions)
})

export type GrantInput = typeof GrantInput.Type

export interface IssuedGrant {
  readonly grant: ExecutionGrant
  /** Shown once: the store keeps only its hash. */
  readonly token: Redacted.Redacted<string>
}

/** The grant store cannot be reached. Access is denied. */
export class GrantStoreUnavailable extends Schema.TaggedError<GrantStoreUnavailable>()(
  "GrantStoreUnavailable",
  {
    detail: Schema.String,
    remedy: Schema.String
  }
) {
  readonly isRetryable = true
  override get message(): string {
    return `the grant store ${this.detail}. ${this.remedy}`
  }
}

/** The input is not a valid grant. The error does not repeat its values. */
export class GrantRefused extends Schema.TaggedError<GrantRefused>()("GrantRefused", {
  /** Each invalid field: its path, such as `permissions`, `tools`, `0`, and its rule. */
  issues: Schema.Array(Schema.Struct({ path: Schema.Array(Schema.String), message: Schema.String }))
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the grant is invalid: ${this.issues.map(describeIssue).join("; ")}. Correct it and issue it again`
  }
}

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

/** Also rejects an invalid date: a grant with one would never expire. */
const checkInput = Schema.decodeUnknownEffect(Schema.toType(GrantInput), { errors: "all" })

/** Creates a grant, dated now, and its token. For implementations of the port. */
export const draft = Effect.fnUntraced(function* (
  input: GrantInput
): Effect.fn.Return<IssuedGrant & { readonly tokenHash: string }, GrantRefused> {
  yield* Effect.mapError(checkInput(input), (error) => new GrantRefused({ issues: issuesOf(error) }))
  const token = yield* GrantToken.generate
  const grant: ExecutionGrant = {
    id: `grant-${crypto.randomUUID()}`,
    userId: input.userId,
    billingAccountId: input.billingAccountId,
    scopes: [...input.scopes],
    allowSandbox: input.allowSandbox,
    permissions: input.permissions ?? safeDefault,
    expiresAt: input.expiresAt,
    revokedAt: null,
    createdAt: new Date(yield* Clock.currentTimeMillis)
  }
  return { grant, token, tokenHash: yield* GrantToken.hash(token) }
})

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
