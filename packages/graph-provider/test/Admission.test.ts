/**
 * Whether a run may start: in which order it is refused, at which moment, and as whose fault.
 */
import * as AgentRegistry from "@cogni/sandbox-graph-provider/AgentRegistry"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { GrantStore, GrantStoreUnavailable } from "@cogni/sandbox-graph-provider/GrantStore"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/SandboxGraphProvider"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { context, envelope, grantOf, refusal, request, run, told, world } from "./GraphWorld.ts"

const answering = { program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) } satisfies Parameters<
  typeof world
>[0]

const withGrants = (find: GrantStore["Service"]["find"]) =>
  SandboxGraphProvider.layer({ enabled: true }).pipe(
    Layer.provide([AgentRegistry.layer([minimal]), Layer.mock(GrantStore, { find }), Repositories.layerNoop]),
    Layer.provideMerge(SandboxRunner.layerMemory(answering))
  )

/** Where there is a relay. */
const anyRepository = Layer.mock(Repositories.Repositories, { check: () => Effect.void })

describe("Admission", () => {
  it.effect("who has no grant does not learn which agents there are", () =>
    Effect.gen(function* () {
      const nobody = yield* refusal(request({ graphId: "sandbox:nobody" }))
      assert.deepStrictEqual([nobody.error, nobody.reason], ["authz_denied", "GrantNotFound"])
    }).pipe(Effect.provide(world({ ...answering, grants: [] })))
  )

  it.effect("a repository needs an agent that calls tools", () =>
    Effect.gen(function* () {
      const repository = { url: "https://example.org/x/y" }
      const refused = yield* refusal(request({ repository }))
      assert.deepStrictEqual([refused.error, refused.reason], ["invalid_request", "CapabilityMissing"])
      const provider = yield* SandboxGraphProvider.SandboxGraphProvider
      yield* provider.check(request({ graphId: "sandbox:worker", repository }), context)
    }).pipe(Effect.provide(world({ ...answering, repositories: anyRepository })))
  )

  it.effect("a grant is over when the run starts, not when it was given", () =>
    Effect.gen(function* () {
      const { final: before } = yield* told(request())
      assert.isTrue(before.ok)
      yield* TestClock.adjust("1 hour")
      const { final: after } = yield* told(request())
      assert.containSubset(after, { ok: false, error: "authz_denied", reason: "GrantExpired" })
    }).pipe(Effect.provide(world({ ...answering, grants: [grantOf({ expiresAt: new Date(3_600_000) })] })))
  )

  it.effect("a grant that is revoked between being asked and starting opens nothing", () => {
    const grants = [grantOf(), grantOf({ revokedAt: new Date(0) })]
    return Effect.gen(function* () {
      const provider = yield* SandboxGraphProvider.SandboxGraphProvider
      yield* provider.check(request(), context)
      const { final } = yield* told(request())
      assert.containSubset(final, { ok: false, error: "authz_denied", reason: "GrantRevoked" })
    }).pipe(Effect.provide(withGrants(() => Effect.sync(() => grants.shift()))))
  })

  it.effect("a store of grants that cannot be reached is no fault of who asks", () =>
    Effect.gen(function* () {
      const refused = yield* refusal(request())
      assert.deepStrictEqual([refused.error, refused.reason], ["internal", "GrantStoreUnavailable"])
    }).pipe(
      Effect.provide(
        withGrants(() => Effect.fail(new GrantStoreUnavailable({ detail: "is gone", remedy: "Look" })))
      )
    )
  )

  it.effect("a run can be cancelled while its grant is looked up", () =>
    Effect.gen(function* () {
      const live = yield* run(request())
      yield* live.cancel
      const waiting = yield* Effect.forkChild(live.final)
      yield* TestClock.adjust("10 minutes")
      assert.isDefined(waiting.pollUnsafe())
    }).pipe(Effect.scoped, Effect.provide(withGrants(() => Effect.never)))
  )

  it.effect("a request without messages is none, also from a caller without types", () =>
    Effect.gen(function* () {
      const none = Object.assign(request(), { messages: [] })
      const { final } = yield* told(none as unknown as ReturnType<typeof request>)
      assert.containSubset(final, { ok: false, error: "invalid_request" })
    }).pipe(Effect.provide(world(answering)))
  )
})
