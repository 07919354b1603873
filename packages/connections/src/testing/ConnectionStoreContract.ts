/** Contract of `ConnectionStore`: connections stay with their account, secrets with their connection, and in order. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { type Connection, ConnectionInput } from "../Connection.ts"
import { connectionsMax, removedMax, UsesKept } from "../ConnectionLimits.ts"
import { ConnectionStore, draft } from "../ConnectionStore.ts"
import type { ConnectionUse } from "../ConnectionUse.ts"

const { billingAccountId, expiresAt, lifetimeSecondsMax, name, scope } = ConnectionInput.fields

/** The parts of a connection that can be any text or number. */
const Drawn = Schema.Struct({ billingAccountId, expiresAt, lifetimeSecondsMax, name, scope })

const account = () => `account-${crypto.randomUUID()}`

const inputOf = (billingAccountId: string, name = "github"): ConnectionInput => ({
  billingAccountId,
  name,
  server: "https://github.com",
  means: { kind: "github_app", installationId: 77 },
  scope: { purposes: ["fetch", "push"], repositories: ["https://github.com/acme/*"] },
  lifetimeSecondsMax: 600,
  expiresAt: new Date("2030-01-02T03:04:05.678Z")
})

const added = Effect.fnUntraced(function* (billingAccountId: string, name?: string, secret?: string) {
  const store = yield* ConnectionStore
  const connection = yield* draft(inputOf(billingAccountId, name))
  yield* store.add(connection, secret)
  return connection
})

const claimOf = ({ id }: Connection, claimId: string, now = 0) => ({
  connectionId: id,
  claimId,
  now: new Date(now),
  until: new Date(now + 1000)
})

const useOf = (connection: Connection, changed: Partial<ConnectionUse> = {}): ConnectionUse => ({
  leaseId: `lease-${crypto.randomUUID()}`,
  // Old entries are not kept.
  at: new Date(),
  event: "issued",
  billingAccountId: connection.billingAccountId!,
  grantId: "grant-1",
  runId: "run-12345678",
  connectionId: connection.id,
  purpose: "push",
  repository: "https://github.com/acme/app",
  toolId: null,
  target: null,
  reason: null,
  expiresAt: new Date("2027-01-01T01:00:00.000Z"),
  ...changed
})

export const suite = <E>(name: string, layer: Layer.Layer<ConnectionStore, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "1 minute" })(`ConnectionStore (${name})`, (it) => {
    it.effect("lists the connections of an account as they were added, and those of no other account", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const [mine, theirs] = [account(), account()]
        const first = yield* added(mine)
        const second = yield* added(mine, "gitlab")
        const other = yield* added(theirs)
        assert.deepStrictEqual(yield* store.list(mine), [second, first])
        assert.deepStrictEqual(yield* store.list(theirs), [other])
        for (const text of ["", "%", "' OR 1=1 --", "\0\uD800"]) assert.isEmpty(yield* store.list(text))
      })
    )

    it.effect("returns a secret only for its connection, and never in a list", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const mine = account()
        const sealed = yield* added(mine, "sealed", "ciphertext-of-one")
        const plain = yield* added(mine, "plain")
        assert.strictEqual(yield* store.secret(sealed.id), "ciphertext-of-one")
        assert.isUndefined(yield* store.secret(plain.id))
        assert.isUndefined(yield* store.secret("connection-unknown"))
        assert.notInclude(JSON.stringify(yield* store.list(mine)), "ciphertext")
      })
    )

    it.effect(
      "refuses a second live connection with the same name, also if both are added at the same time",
      () =>
        Effect.gen(function* () {
          const store = yield* ConnectionStore
          const mine = account()
          const drafts = yield* Effect.all([1, 2, 3, 4].map(() => draft(inputOf(mine))))
          const answers = yield* Effect.forEach(
            drafts,
            (connection) => Effect.result(store.add(connection, undefined)),
            { concurrency: "unbounded" }
          )
          const failed = answers.flatMap((answer) => (answer._tag === "Failure" ? [answer.failure._tag] : []))
          assert.deepStrictEqual(failed, ["ConnectionExists", "ConnectionExists", "ConnectionExists"])
          assert.lengthOf(yield* store.list(mine), 1)
        })
    )

    it.effect(`refuses more than ${connectionsMax} live connections of one account`, () =>
      Effect.gen(function* () {
        const mine = account()
        yield* Effect.forEach(Array.from({ length: connectionsMax }), (_, at) => added(mine, `github-${at}`))
        const error = yield* Effect.flip(added(mine, "one-more"))
        assert.strictEqual(error._tag, "ConnectionRefused")
        assert.include(error.message, String(connectionsMax))
      })
    )

    it.effect("revokes a connection once: its secret is gone, and its name can be used again", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const mine = account()
        const first = yield* added(mine, "github", "ciphertext")
        const lease = { leaseId: "lease-1", connectionId: first.id }
        assert.isTrue(yield* store.isLive(lease))
        assert.isFalse(yield* store.revoke(account(), "github"))
        assert.isTrue(yield* store.revoke(mine, "github"))
        assert.isFalse(yield* store.revoke(mine, "github"))
        assert.isUndefined(yield* store.secret(first.id))
        assert.isFalse(yield* store.isLive(lease))
        assert.isFalse(yield* store.claim(claimOf(first, "late")))
        const second = yield* added(mine)
        const [live, revoked] = yield* store.list(mine)
        assert.isNotNull(revoked!.revokedAt)
        assert.deepStrictEqual([live, { ...revoked, revokedAt: null }], [second, first])
      })
    )

    it.effect("gives a secret to one claim at a time, until it is settled or its time is over", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const one = yield* added(account(), "github", "first")
        const claims = yield* Effect.forEach(
          ["a", "b", "c", "d"],
          (claimId) => Effect.map(store.claim(claimOf(one, claimId)), (isOurs) => (isOurs ? [claimId] : [])),
          { concurrency: "unbounded" }
        )
        const [winner = ""] = claims.flat()
        assert.lengthOf(claims.flat(), 1)
        assert.isFalse(yield* store.settle({ connectionId: one.id, claimId: "stranger" }, "stolen"))
        assert.strictEqual(yield* store.secret(one.id), "first")
        assert.isTrue(yield* store.settle({ connectionId: one.id, claimId: winner }, "second"))
        assert.strictEqual(yield* store.secret(one.id), "second")
        assert.isTrue(
          yield* store.settle({ connectionId: one.id, claimId: winner }, "second"),
          "again, after a lost answer"
        )
        assert.isFalse(yield* store.settle({ connectionId: one.id, claimId: winner }, "third"))
        assert.isTrue(yield* store.claim(claimOf(one, "slow")))
        assert.isFalse(yield* store.claim(claimOf(one, "early", 999)))
        assert.isTrue(yield* store.claim(claimOf(one, "later", 1000)))
        assert.isFalse(yield* store.settle({ connectionId: one.id, claimId: "slow" }, "of a lost claim"))
        assert.isTrue(yield* store.settle({ connectionId: one.id, claimId: "later" }, undefined))
        assert.strictEqual(yield* store.secret(one.id), "second")
      })
    )

    it.effect("lists the entries of an account, newest first, as they were recorded", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const mine = account()
        const one = yield* added(mine)
        const uses = [
          useOf(one),
          useOf(one, { event: "denied", reason: "grant_expired", connectionId: null, expiresAt: null }),
          useOf(one, { runId: null, repository: null, toolId: "github__\u0000issues", purpose: "tool_read" })
        ]
        yield* Effect.forEach(uses, store.record)
        yield* store.record(useOf(yield* added(account())))
        const query = { billingAccountId: mine }
        assert.deepStrictEqual(yield* store.uses(query), uses.toReversed())
        assert.deepStrictEqual(yield* store.uses({ ...query, limit: 1 }), uses.slice(2))
        assert.deepStrictEqual(yield* store.uses({ ...query, runId: "run-12345678" }), [uses[1]!, uses[0]!])
        assert.deepStrictEqual(yield* store.uses({ ...query, connectionId: one.id }), [uses[2]!, uses[0]!])
        assert.deepStrictEqual(yield* store.uses({ ...query, leaseId: uses[0]!.leaseId }), [uses[0]!])
        assert.isEmpty(yield* store.uses({ billingAccountId: "' OR 1=1 --" }))
      })
    )

    it.effect("lists the connections of all accounts that have a secret, each once", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const mine = account()
        const own = yield* added(mine, "own", "ciphertext")
        const other = yield* added(account(), "other", "ciphertext")
        const without = yield* added(mine, "without")
        const removed = yield* added(mine, "removed", "ciphertext")
        yield* store.revoke(mine, "removed")
        const found: Array<{ readonly id: string; readonly connection: Connection | undefined }> = []
        while (true) {
          const page = yield* store.withSecret(found.at(-1)?.id)
          if (page.length === 0) break
          found.push(...page)
        }
        const ids = found.map(({ id }) => id)
        assert.deepStrictEqual(ids, [...new Set(ids)].toSorted())
        const connections = found.map(({ connection }) => connection)
        assert.includeDeepMembers(connections, [own, other])
        for (const { id } of [without, removed]) assert.notInclude(ids, id)
        assert.notInclude(JSON.stringify(found), "ciphertext")
      })
    )

    it.effect(`keeps the ${removedMax} newest removed connections of an account`, () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const mine = account()
        const names = Array.from({ length: removedMax + 2 }, (_, at) => `github-${at}`)
        const all = yield* Effect.forEach(names, (name) =>
          Effect.tap(added(mine, name), () => store.revoke(mine, name))
        )
        const last = yield* added(mine, "last")
        const kept = (yield* store.list(mine)).map(({ id }) => id)
        assert.deepStrictEqual(kept, [
          last.id,
          ...all
            .slice(2)
            .toReversed()
            .map(({ id }) => id)
        ])
        assert.isFalse(yield* store.isLive({ leaseId: "lease-x", connectionId: all[0]!.id }))
      })
    )

    it.effect("keeps the newest entries of each account, and none that is too old", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const one = yield* added(account())
        const other = yield* added(account())
        const now = Date.now()
        const day = 24 * 60 * 60 * 1000
        const at = (days: number) => ({ at: new Date(now - days * day) })
        const young = Array.from({ length: 6 }, () => useOf(one, at(1)))
        const quiet = useOf(other, at(1))
        yield* Effect.forEach([quiet, useOf(other, at(31)), ...young], store.record)
        const entries = (connection: Connection) =>
          store.uses({ billingAccountId: connection.billingAccountId! })
        assert.deepStrictEqual(yield* entries(one), young.slice(2).toReversed())
        assert.deepStrictEqual(yield* entries(other), [quiet])
        const denied = Array.from({ length: 6 }, () => useOf(one, { ...at(1), event: "denied" }))
        yield* Effect.forEach(denied, store.record)
        assert.deepStrictEqual(yield* entries(one), [
          ...denied.slice(4).toReversed(),
          ...young.slice(2).toReversed()
        ])
      }).pipe(
        Effect.provide(
          Layer.fresh(layer).pipe(
            Layer.provide(
              Layer.succeed(UsesKept, { daysMax: 30, entriesMax: 4, refusedMax: 2, entriesBetween: 1 })
            )
          )
        )
      )
    )

    it.effect("ends a lease that is revoked, and no other", () =>
      Effect.gen(function* () {
        const store = yield* ConnectionStore
        const one = yield* added(account())
        const [first, second] = [useOf(one), useOf(one)]
        yield* Effect.forEach([first, second, { ...first, event: "revoked" as const }], store.record)
        const isLive = ({ leaseId }: ConnectionUse) => store.isLive({ leaseId, connectionId: one.id })
        assert.deepStrictEqual([yield* isLive(first), yield* isLive(second)], [false, true])
        assert.isTrue(yield* store.isLive({ leaseId: "lease-x", connectionId: "host/github-token" }))
        assert.isFalse(yield* store.isLive({ leaseId: "lease-x", connectionId: "connection-unknown" }))
      })
    )

    it.effect.prop(
      "stores any valid connection and any name of an account unchanged",
      { drawn: Drawn },
      ({ drawn: { billingAccountId, ...drawn } }) =>
        Effect.gen(function* () {
          const store = yield* ConnectionStore
          const mine = `${account()}${billingAccountId}`.slice(0, 200)
          const connection = yield* draft({ ...inputOf(mine), ...drawn })
          yield* store.add(connection, undefined)
          yield* store.record(useOf(connection, { grantId: billingAccountId }))
          assert.deepStrictEqual(yield* store.list(mine), [connection])
          const [use] = yield* store.uses({ billingAccountId: mine, connectionId: connection.id })
          assert.strictEqual(use?.grantId, billingAccountId)
        }),
      { arbitrary: { runs: 40 } }
    )
  })
