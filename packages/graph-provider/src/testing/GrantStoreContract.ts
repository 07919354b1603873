/** Contract of `GrantStore`: each token and each sign-in authenticates exactly one grant, and neither is stored. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, type Layer, Redacted } from "effect"
import { GrantStore } from "../grants/GrantStore.ts"
import { type GrantInput, GrantInput as GrantInputSchema } from "../grants/GrantDraft.ts"
import * as GrantToken from "../grants/GrantToken.ts"

const input: GrantInput = {
  userId: "user-1",
  billingAccountId: "acct-1",
  scopes: ["graph:execute:sandbox:agent", "graph:execute:*"],
  allowSandbox: true,
  expiresAt: new Date("2030-01-02T03:04:05.678Z")
}

/** A clock that stands still. */
const stoppedAt = (millis: number): Clock.Clock => {
  const nanos = BigInt(millis) * 1_000_000n
  return {
    currentTimeMillisUnsafe: () => millis,
    currentTimeMillis: Effect.succeed(millis),
    currentTimeNanosUnsafe: () => nanos,
    currentTimeNanos: Effect.succeed(nanos),
    monotonicTimeNanosUnsafe: () => nanos,
    monotonicTimeNanos: Effect.succeed(nanos),
    sleep: () => Effect.never
  }
}

export const suite = <E>(name: string, layer: Layer.Layer<GrantStore, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "1 minute" })(`GrantStore (${name})`, (it) => {
    it.effect("finds a grant by its ID and by its token, as it was issued", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        const { grant, token } = yield* store.issue(input)
        assert.deepInclude(grant, { ...input, revokedAt: null })
        assert.deepStrictEqual(yield* store.find(grant.id), grant)
        assert.deepStrictEqual(yield* store.authenticate(token), grant)
      })
    )

    it.effect("keeps the permissions of a grant; without permissions, a grant has the safe default", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        const permissions = {
          tools: ["core__*"],
          models: ["gpt-5", "openai/**"],
          repositories: ["https://github.com/acme/*"],
          budget: { callsMax: 5, costUsdMax: 0.5, onExhausted: "stop" as const },
          concurrentRunsMax: 2
        }
        const { grant } = yield* store.issue({ ...input, permissions })
        assert.deepStrictEqual((yield* store.find(grant.id))?.permissions, permissions)
        const plain = yield* store.issue(input)
        assert.deepStrictEqual((yield* store.find(plain.grant.id))?.permissions, {})
      })
    )

    it.effect("never prints a token, and authenticates each token as its own grant only", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        const first = yield* store.issue(input)
        const second = yield* store.issue(input)
        assert.notStrictEqual(first.grant.id, second.grant.id)
        assert.strictEqual((yield* store.authenticate(second.token))?.id, second.grant.id)
        assert.strictEqual((yield* store.authenticate(first.token))?.id, first.grant.id)
        assert.notInclude(JSON.stringify([first, String(first.token)]), "cgs_")
      })
    )

    it.effect("finds no grant for a text that is not a token: an ID, an empty text, SQL, bytes", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        const { grant } = yield* store.issue(input)
        for (const text of [grant.id, "", "cgs_", "cgs_\0\uD800", "' OR 1=1 --", "x".repeat(100_000)]) {
          assert.isUndefined(yield* store.authenticate(Redacted.make(text)))
          assert.isUndefined(text === grant.id ? undefined : yield* store.find(text))
        }
      })
    )

    it.effect("keeps the time of the first revocation, and still finds a revoked grant", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        const { grant, token } = yield* store.issue(input)
        const revoked = yield* store.revoke(grant.id)
        assert.isNotNull(revoked?.revokedAt)
        yield* Effect.sleep("3 millis")
        assert.deepStrictEqual(yield* store.revoke(grant.id), revoked)
        assert.deepStrictEqual(yield* store.find(grant.id), revoked)
        assert.deepStrictEqual(yield* store.authenticate(token), revoked)
        assert.isUndefined(yield* store.revoke("grant-00000000-0000-0000-0000-000000000000"))
      })
    )

    it.effect("lists the grants of one account in pages, and never those of another", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        const account = `acct "billingAccountId":"victim" % _ \\ \u0000 ${crypto.randomUUID()}`
        const issue = (billingAccountId: string, userId = "user-1") =>
          Effect.map(store.issue({ ...input, billingAccountId, userId }), ({ grant }) => grant.id)
        const idsOf = (billingAccountId: string, limit: number, after?: string) =>
          Effect.map(store.ofAccount({ billingAccountId, limit, after }), (found) =>
            found.map(({ id }) => id)
          )
        const own = [yield* issue(account), yield* issue(account), yield* issue(account)].toReversed()
        const other = yield* issue("victim", `"billingAccountId":${JSON.stringify(account)}`)
        yield* store.revoke(own[1]!)
        assert.deepStrictEqual(yield* idsOf(account, 10), own)
        assert.deepStrictEqual(yield* idsOf(account, 2), own.slice(0, 2))
        assert.deepStrictEqual(yield* idsOf(account, 2, own[1]), own.slice(2))
        assert.deepStrictEqual(yield* idsOf(account, 2, own[2]), [])
        assert.deepStrictEqual(yield* idsOf(account, 10, other), [])
        assert.deepStrictEqual(yield* idsOf(account, 10, "' OR 1=1 --"), [])
        assert.notInclude(yield* idsOf("victim", 1000), own[0])
        assert.deepStrictEqual(yield* idsOf("", 10), [])
      })
    )

    it.effect("lists every grant once, newest first", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        const issued = [yield* store.issue(input), yield* store.issue(input), yield* store.issue(input)]
        const ids = issued.map(({ grant }) => grant.id)
        const listed = (yield* store.list).map(({ id }) => id).filter((id) => ids.includes(id))
        assert.deepStrictEqual(listed, ids.toReversed())
      })
    )

    it.effect("rejects an invalid grant without repeating its values", () =>
      Effect.gen(function* () {
        const store = yield* GrantStore
        for (const wrong of [
          { ...input, expiresAt: new Date(Number.NaN) },
          { ...input, userId: "" },
          { ...input, scopes: ["everything-there-is"] },
          { ...input, permissions: { repositories: ["https://*.everything-there-is/**"] } },
          { ...input, permissions: { tools: [""] } },
          { ...input, permissions: { concurrentRunsMax: 0 } }
        ]) {
          const error = yield* Effect.flip(store.issue(wrong))
          assert.strictEqual(error._tag, "GrantRefused")
          assert.notInclude(error.message, "everything-there-is")
        }
      })
    )

    it.effect("authenticates a sign-in as its own grant, until it is closed", () =>
      Effect.gen(function* () {
        const { authenticate, authenticateSignIn, closeSignIn, issue, openSignIn } = yield* GrantStore
        const [first, second] = [yield* issue(input), yield* issue(input)]
        const mine = yield* openSignIn(first.grant.id, 60)
        const other = yield* openSignIn(second.grant.id, 60)
        assert.deepStrictEqual(yield* authenticateSignIn(mine), first.grant)
        assert.deepStrictEqual(yield* authenticateSignIn(other), second.grant)
        // Neither may stand in for the other.
        assert.isTrue(GrantToken.isSignIn(mine) && !GrantToken.isWellFormed(mine))
        assert.isUndefined(yield* authenticate(mine))
        assert.isUndefined(yield* authenticateSignIn(first.token))
        yield* closeSignIn(mine)
        yield* closeSignIn(mine)
        assert.isUndefined(yield* authenticateSignIn(mine))
        assert.deepStrictEqual(yield* authenticateSignIn(other), second.grant)
        assert.deepStrictEqual(yield* authenticate(first.token), first.grant)
      })
    )

    it.effect("finds a revoked grant of a sign-in as revoked", () =>
      Effect.gen(function* () {
        const { authenticateSignIn, issue, openSignIn, revoke } = yield* GrantStore
        const { grant } = yield* issue(input)
        const secret = yield* openSignIn(grant.id, 60)
        yield* revoke(grant.id)
        assert.isNotNull((yield* authenticateSignIn(secret))?.revokedAt ?? null)
      })
    )

    it.effect("ends a sign-in at its time", () =>
      Effect.gen(function* () {
        const { authenticateSignIn, issue, openSignIn } = yield* GrantStore
        const { grant } = yield* issue(input)
        const at = new Date("2040-01-01").getTime()
        const timed = <A, E>(millis: number, effect: Effect.Effect<A, E>) =>
          Effect.provideService(effect, Clock.Clock, stoppedAt(at + millis))
        const secret = yield* timed(0, openSignIn(grant.id, 60))
        assert.isDefined(yield* timed(59_999, authenticateSignIn(secret)))
        assert.isUndefined(yield* timed(60_000, authenticateSignIn(secret)))
      })
    )

    it.effect("ends the oldest sign-in of a grant that opens too many, and none of another", () =>
      Effect.gen(function* () {
        const { authenticateSignIn, issue, openSignIn } = yield* GrantStore
        const [many, one] = [yield* issue(input), yield* issue(input)]
        const kept = yield* openSignIn(one.grant.id, 60)
        const secrets = yield* Effect.replicateEffect(
          openSignIn(many.grant.id, 60),
          GrantToken.signInsPerGrantMax + 2
        )
        const found = yield* Effect.forEach(secrets, (secret) => authenticateSignIn(secret))
        assert.deepStrictEqual(
          found.map((grant) => grant !== undefined),
          secrets.map((_, index) => index >= 2)
        )
        assert.isDefined(yield* authenticateSignIn(kept))
      })
    )

    it.effect.prop(
      "stores any valid grant unchanged",
      { words: GrantInputSchema },
      ({ words }) =>
        Effect.gen(function* () {
          const store = yield* GrantStore
          const { grant, token } = yield* store.issue(words)
          assert.deepInclude(grant, { ...words })
          assert.deepStrictEqual(yield* store.find(grant.id), grant)
          assert.deepStrictEqual(yield* store.authenticate(token), grant)
        }),
      { arbitrary: { runs: 60 } }
    )
  })
