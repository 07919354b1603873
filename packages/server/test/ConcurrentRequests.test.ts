/** Tests that requests at the same time share readings of the stores, and are still decided each on its own. */
import * as Await from "../../../test/harness/Await.ts"
import { GrantStore, layerMemory } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { answering, serve } from "./ServerWorld.ts"

/** A store of grants whose answers can be delayed after they are read, as those of a busy database. */
const makeGrants = () => {
  const state = { lookups: 0, answered: Deferred.makeUnsafe<void>() }
  Deferred.doneUnsafe(state.answered, Effect.void)
  const layer = Layer.effect(
    GrantStore,
    Effect.map(GrantStore, (store) =>
      GrantStore.of({
        ...store,
        authenticate: (token) =>
          Effect.gen(function* () {
            state.lookups += 1
            const { answered } = state
            const found = yield* store.authenticate(token)
            // As a network does: meanwhile, other requests come.
            for (let turns = 0; turns < 20; turns++)
              yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
            yield* Deferred.await(answered)
            return found
          })
      })
    )
  ).pipe(Layer.provide(layerMemory))
  return { state, layer }
}

describe("requests at the same time", () => {
  it.effect("get only the runs of their own grants, although they share lookups", () =>
    Effect.gen(function* () {
      const { layer, state } = makeGrants()
      const server = yield* serve({ program: answering("Lima"), grants: layer })
      const callers = yield* Effect.forEach(["one", "two", "three"], (billingAccountId) =>
        server.caller({ billingAccountId })
      )
      const owned = yield* Effect.forEach(callers, (caller) =>
        Effect.map(caller.chat(), ({ runId }) => ({ caller, runId }))
      )
      state.lookups = 0
      const asked = Array.from({ length: 10 }, () => owned)
        .flat()
        .flatMap((own) => owned.map((other) => ({ own, other })))
      const found = yield* Effect.forEach(
        asked,
        ({ other, own }) =>
          Effect.map(own.caller.get(`/api/v1/runs/${other.runId}`), ({ body, status }) => ({
            status,
            grantId: body.grantId
          })),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        found,
        asked.map(({ other, own }) =>
          own === other ? { status: 200, grantId: own.caller.grantId } : { status: 404, grantId: undefined }
        )
      )
      assert.isBelow(state.lookups, asked.length)
    })
  )

  it.effect("are refused once their grant is revoked, while an earlier lookup is under way", () =>
    Effect.gen(function* () {
      const { layer, state } = makeGrants()
      const server = yield* serve({ grants: layer })
      const caller = yield* server.caller()
      const ask = Effect.map(caller.get("/api/v1/runs"), ({ body, status }) => [status, body.error?.reason])
      state.answered = Deferred.makeUnsafe<void>()
      const { answered } = state
      const before = yield* Effect.forkChild(ask)
      yield* Await.until(
        "the first request is looked up",
        Effect.sync(() => state.lookups === 1)
      )
      yield* server.grants.revoke(caller.grantId)
      state.answered = Deferred.makeUnsafe<void>()
      const after = yield* Effect.forkChild(ask)
      // The second request does not share the lookup of the first one, which found the grant valid.
      yield* Await.until(
        "the second request is looked up",
        Effect.andThen(
          TestClock.adjust("100 millis"),
          Effect.sync(() => state.lookups === 2)
        )
      )
      yield* Deferred.succeed(answered, undefined)
      yield* Deferred.succeed(state.answered, undefined)
      assert.deepStrictEqual(yield* Fiber.join(before), [200, undefined])
      assert.deepStrictEqual(yield* Fiber.join(after), [403, "GrantRevoked"])
    })
  )
})
