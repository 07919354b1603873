/** Grants and connections over HTTP: who sees them, whose they are, and that no secret is among them. */
import type { Connection } from "@cogni/sandbox-connections/Connection"
import { ConnectionStore, draft, layerMemory } from "@cogni/sandbox-connections/ConnectionStore"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { answering, serve } from "./ServerWorld.ts"

const see = { permissions: { seeGrants: true } }
const secret = "sealed-secret-of-the-connection"

const input = (billingAccountId: string, name: string) => ({
  billingAccountId,
  name,
  server: "https://github.com",
  means: { kind: "token" as const },
  expiresAt: null
})

/** A server with connections of two accounts, and some uses of one. */
const world = Effect.gen(function* () {
  const context = yield* Layer.build(layerMemory)
  const store = Context.get(context, ConnectionStore)
  const served = yield* serve({
    program: answering("Lima"),
    connections: Layer.succeed(ConnectionStore, store)
  })
  const add = (account: string, name: string) =>
    Effect.tap(Effect.orDie(draft(input(account, name))), (made) => Effect.orDie(store.add(made, secret)))
  const used = (connection: Connection, leaseId: string, at: number) =>
    Effect.orDie(
      store.record({
        leaseId,
        at: new Date(at),
        event: "issued",
        billingAccountId: connection.billingAccountId!,
        grantId: "grant-x",
        runId: null,
        connectionId: connection.id,
        purpose: "fetch",
        repository: "https://github.com/acme/app",
        toolId: null,
        target: null,
        reason: null,
        expiresAt: new Date(at + 1000)
      })
    )
  return { ...served, store, add, used }
})

const paths = ["/api/v1/grants", "/api/v1/connections", "/api/v1/connections/connection-1/uses"]

describe("access", () => {
  it.effect("is listed only for a grant with the right to, and only with known cursors", () =>
    Effect.gen(function* () {
      const { caller } = yield* world
      const plain = yield* caller({ permissions: { approve: true, tools: ["**"] } })
      const seer = yield* caller(see)
      for (const path of paths) {
        const { body, status } = yield* plain.get(path)
        assert.deepStrictEqual([path, status, body.error.reason], [path, 403, "AccessNotGranted"])
        assert.strictEqual((yield* seer.get(path)).status, 200, path)
        for (const query of ["after=nothing", "limit=0", "limit=101", "limit=x"])
          assert.deepStrictEqual(
            [path, query, (yield* seer.get(`${path}?${query}`)).status],
            [path, query, 400]
          )
      }
    })
  )

  it.effect("has the grants of the account in pages, with their state and last run, and no token", () =>
    Effect.gen(function* () {
      const { caller, grant, grants } = yield* world
      const seer = yield* caller(see)
      const runner = yield* caller({ userId: "<b>ana</b>" })
      const { runId } = yield* runner.chat()
      const old = yield* Effect.orDie(grant({ expiresAt: new Date(0) }))
      const gone = yield* Effect.orDie(grant())
      yield* Effect.orDie(grants.revoke(gone.id))
      const stranger = yield* caller({ ...see, billingAccountId: "other" })
      const whole = yield* seer.get("/api/v1/grants")
      assert.deepStrictEqual(
        whole.body.grants.map(({ id, state }: any) => [id, state]),
        [
          [gone.id, "revoked"],
          [old.id, "expired"],
          [runner.grantId, "active"],
          [seer.grantId, "active"]
        ]
      )
      assert.isUndefined(whole.body.next)
      const [, , used, unused] = whole.body.grants
      const run = (yield* runner.get(`/api/v1/runs/${runId}`)).body
      assert.strictEqual(used.lastRunAt, run.startedAt)
      assert.strictEqual(used.userId, "<b>ana</b>")
      assert.isUndefined(unused.lastRunAt)
      assert.deepStrictEqual(unused.permissions, { seeGrants: true })
      const text = JSON.stringify(whole.body)
      for (const one of [seer, runner, old, gone, stranger]) assert.notInclude(text, one.token)
      assert.notInclude(text, "cgs_")
      const first = (yield* seer.get("/api/v1/grants?limit=3")).body
      const rest = (yield* seer.get(`/api/v1/grants?limit=3&after=${first.next}`)).body
      assert.deepStrictEqual([...first.grants, ...rest.grants], whole.body.grants)
      assert.isUndefined(rest.next)
      // Nothing of the other account is in a list or follows a cursor.
      assert.deepStrictEqual(
        (yield* stranger.get("/api/v1/grants")).body.grants.map(({ id }: any) => id),
        [stranger.grantId]
      )
      assert.strictEqual((yield* stranger.get(`/api/v1/grants?after=${first.next}`)).status, 400)
    })
  )

  it.effect("has the connections of the account and their uses in pages, and never a secret", () =>
    Effect.gen(function* () {
      const { add, caller, store, used } = yield* world
      const ours = [yield* add("acct", "one"), yield* add("acct", "two"), yield* add("acct", "three")]
      const theirs = yield* add("other", "theirs")
      yield* Effect.orDie(store.revoke("acct", "two"))
      yield* used(ours[0]!, "lease-1", 1000)
      yield* used(theirs, "lease-9", 9000)
      yield* used(ours[0]!, "lease-2", 2000)
      yield* used(ours[0]!, "lease-3", 3000)
      const seer = yield* caller(see)
      const stranger = yield* caller({ ...see, billingAccountId: "other" })
      const whole = yield* seer.get("/api/v1/connections")
      assert.deepStrictEqual(
        whole.body.connections.map(({ kind, lastUsedAt, name, state }: any) => [
          name,
          kind,
          state,
          lastUsedAt
        ]),
        [
          ["three", "token", "active", undefined],
          ["one", "token", "active", new Date(3000).toISOString()],
          ["two", "token", "revoked", undefined]
        ]
      )
      assert.notInclude(JSON.stringify(whole.body), secret)
      assert.notInclude(JSON.stringify(whole.body), "means")
      const first = (yield* seer.get("/api/v1/connections?limit=2")).body
      const rest = (yield* seer.get(`/api/v1/connections?limit=2&after=${first.next}`)).body
      assert.deepStrictEqual([...first.connections, ...rest.connections], whole.body.connections)
      const usesAt = `/api/v1/connections/${ours[0]!.id}/uses`
      const uses = (yield* seer.get(usesAt)).body.uses
      assert.deepStrictEqual(
        uses.map(({ leaseId }: any) => leaseId),
        ["lease-3", "lease-2", "lease-1"]
      )
      const page = (yield* seer.get(`${usesAt}?limit=2`)).body
      // A use meanwhile moves nothing in the next page.
      yield* used(ours[0]!, "lease-4", 4000)
      const after = encodeURIComponent(page.next)
      assert.deepStrictEqual((yield* seer.get(`${usesAt}?limit=2&after=${after}`)).body, {
        uses: uses.slice(2)
      })
      assert.deepStrictEqual((yield* stranger.get(usesAt)).body, { uses: [] })
      assert.deepStrictEqual(
        (yield* stranger.get("/api/v1/connections")).body.connections.map(({ name }: any) => name),
        ["theirs"]
      )
    })
  )

  it.effect("says that a server without a store of connections has none", () =>
    Effect.gen(function* () {
      const seer = yield* (yield* serve()).caller(see)
      const { body, status } = yield* seer.get("/api/v1/connections")
      assert.deepStrictEqual([status, body.error.reason], [404, "ConnectionsNotKept"])
    })
  )
})
