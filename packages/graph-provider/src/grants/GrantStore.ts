/**
 * The port that keeps grants, and finds the one that a token shows.
 *
 * Finding says nothing about whether a grant still opens anything: it answers revoked and expired ones too, and
 * `ExecutionGrant.check` decides, so that there is one place that does.
 */
import { describeIssue, issuesOf } from "@cogni/sandbox-core/SandboxSpec"
import { Clock, Context, Effect, Layer, type Redacted, Ref, Schema } from "effect"
import { ExecutionGrant } from "./ExecutionGrant.ts"
import { GrantPermissions, safeDefault } from "./GrantPermissions.ts"
import * as GrantToken from "./GrantToken.ts"

/** The newest grants that are listed. */
export const listedMax = 1000

const { allowSandbox, billingAccountId, expiresAt, scopes, userId } = ExecutionGrant.fields

/** What is granted, to whom, until when. */
export const GrantInput = Schema.Struct({
  userId,
  billingAccountId,
  scopes,
  allowSandbox,
  expiresAt,
  /** Absent: no tools, no repositories, and the models that the host offers. */
  permissions: Schema.optionalKey(GrantPermissions)
})

export type GrantInput = typeof GrantInput.Type

export interface IssuedGrant {
  readonly grant: ExecutionGrant
  /** Told this once, and never again. */
  readonly token: Redacted.Redacted<string>
}

/** Where grants are kept cannot be reached. Nobody is let in for that. */
export class GrantStoreUnavailable extends Schema.TaggedError<GrantStoreUnavailable>()(
  "GrantStoreUnavailable",
  {
    detail: Schema.String,
    remedy: Schema.String
  }
) {
  readonly isRetryable = true
  override get message(): string {
    return `the store of grants ${this.detail}. ${this.remedy}`
  }
}

/** What was to be granted is no grant; its values are not repeated. */
export class GrantRefused extends Schema.TaggedError<GrantRefused>()("GrantRefused", {
  /** Each field that is wrong, such as `permissions`, `tools`, `0`, and its rule. */
  issues: Schema.Array(Schema.Struct({ path: Schema.Array(Schema.String), message: Schema.String }))
}) {
  readonly isRetryable = false
  override get message(): string {
    return `no such grant can be issued: ${this.issues.map(describeIssue).join("; ")}. Correct it and issue it again`
  }
}

export class GrantStore extends Context.Service<
  GrantStore,
  {
    /** A new grant, with an id and a token of its own. */
    readonly issue: (input: GrantInput) => Effect.Effect<IssuedGrant, GrantRefused | GrantStoreUnavailable>
    readonly find: (grantId: string) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
    /** The grant that a token shows; `undefined` of anything that is no token of a grant here. */
    readonly authenticate: (
      token: Redacted.Redacted<string>
    ) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
    /**
     * From now on it opens nothing; of one that was revoked before, the first time stays. Answers the grant, or
     * `undefined` where there is none.
     */
    readonly revoke: (grantId: string) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
    /** The newest first, at most {@link listedMax}. */
    readonly list: Effect.Effect<ReadonlyArray<ExecutionGrant>, GrantStoreUnavailable>
  }
>()("@cogni/sandbox-graph-provider/GrantStore") {}

/** A time that is none is refused with the rest: it would never be over. */
const checkInput = Schema.decodeUnknownEffect(Schema.toType(GrantInput), { errors: "all" })

/** A grant of these words, as of now, with its token. For implementations. */
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

export const makeMemory = Effect.gen(function* () {
  const grants = yield* Ref.make<ReadonlyMap<string, { grant: ExecutionGrant; tokenHash: string }>>(new Map())
  return GrantStore.of({
    issue: Effect.fn("GrantStore.issue")(function* (input) {
      const { grant, token, tokenHash } = yield* draft(input)
      yield* Ref.update(grants, (all) => new Map(all).set(grant.id, { grant, tokenHash }))
      return { grant, token }
    }),
    find: (grantId) => Effect.map(Ref.get(grants), (all) => all.get(grantId)?.grant),
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
    )
  })
})

export const layerMemory: Layer.Layer<GrantStore> = Layer.effect(GrantStore, makeMemory)
