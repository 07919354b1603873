/** The broker: the decision comes before any credential, an answer is compared with it, and a lease can end early. */
import { assert, describe, it } from "@effect/vitest"
import { ConnectionError } from "@cogni/sandbox-connections/ConnectionError"
import { ConnectionDenied } from "@cogni/sandbox-connections/ConnectionReason"
import type { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import * as ConnectionDecision from "@cogni/sandbox-connections/ConnectionDecision"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import type { Issued } from "@cogni/sandbox-connections/CredentialSource"
import { Deferred, Effect, Fiber, Redacted, Result } from "effect"
import { TestClock } from "effect/testing"
import { inspect } from "node:util"
import type { Claim } from "../src/internal/Claim.ts"
import {
  leavingSecondsMax,
  sourceSecondsMax,
  unverifiedSecondsMax,
  watchSeconds
} from "../src/internal/LeaseLimits.ts"
import * as BrokerWorld from "./BrokerWorld.ts"
import * as Cases from "./ConnectionCases.ts"

const { push } = BrokerWorld

const start = TestClock.setTime(Cases.permitted.now.getTime())

type UseRequest = Parameters<ConnectionBroker["Service"]["lease"]>[0]

type Made = Effect.Success<ReturnType<typeof BrokerWorld.make>>

/** Leases in the world's name, with its logger. */
const leased = ({ broker, context, user }: Made, request: UseRequest = push) =>
  broker.lease(request).pipe(Effect.provideService(ConnectionUser, user), Effect.provideContext(context))

const refused = (made: Made, request?: UseRequest) =>
  Effect.map(Effect.flip(Effect.scoped(leased(made, request))), ({ reason }) => reason)

const eventsOf = ({ store }: Made) =>
  Effect.map(store.uses({ billingAccountId: "account-a" }), (uses) =>
    uses.toReversed().map(({ event, reason }) => (reason === null ? event : `${event}: ${reason}`))
  )

/** Everything that an operator or a caller could see. */
const seen = (made: Made, ...more: ReadonlyArray<unknown>) =>
  Effect.map(made.store.uses({ billingAccountId: "account-a" }), (uses) =>
    [uses, made.world.logs, ...more]
      .flatMap((one) => [JSON.stringify(one), inspect(one, { depth: 9 }), String(one)])
      .join("\n")
  )

describe("ConnectionBroker", () => {
  it.effect("hands out a credential for one use, and makes it invalid afterwards", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      const lease = yield* Effect.scoped(
        Effect.tap(leased(made), () => Effect.sync(() => assert.strictEqual(made.world.revoked, 0)))
      )
      assert.strictEqual(Redacted.value(lease.secret), "planted-token-1")
      assert.deepInclude(lease, {
        username: "x-access-token",
        expiresAt: new Date("2027-01-01T00:10:00.000Z")
      })
      assert.strictEqual(made.world.revoked, 1)
      const entry = {
        leaseId: lease.id,
        at: new Date("2027-01-01T00:00:00.000Z"),
        billingAccountId: "account-a",
        grantId: "grant-1",
        runId: "run-12345678",
        connectionId: "connection-a",
        purpose: "push",
        repository: "https://github.com/acme/app.git",
        toolId: null,
        target: null,
        reason: null
      } as const
      assert.deepStrictEqual(yield* made.store.uses({ billingAccountId: "account-a", leaseId: lease.id }), [
        { ...entry, event: "ended", expiresAt: null },
        { ...entry, event: "issued", expiresAt: new Date("2027-01-01T00:10:00.000Z") }
      ])
      assert.notInclude(yield* seen(made, lease), BrokerWorld.planted)
    })
  )

  it.effect("denies every use without a user", () =>
    Effect.gen(function* () {
      const made = yield* BrokerWorld.make()
      const error = yield* Effect.flip(Effect.scoped(made.broker.lease(push)))
      assert.strictEqual(error.code, "policy_denied")
      assert.include(error.message, "ConnectionUser")
      assert.strictEqual(made.world.looks, 0)
    })
  )

  it.effect.prop(
    "looks at no credential outside of what grant and request have in common",
    { cases: Cases.Hundred },
    ({ cases }) =>
      Effect.gen(function* () {
        const made = yield* BrokerWorld.make()
        for (const drawn of cases) {
          // The test clock begins at this time.
          const snapshot = Cases.snapshotOf(drawn, new Date(0))
          const { billingAccountId, ...request } = snapshot.request
          made.world.looks = 0
          made.world.connections = snapshot.connections
          made.world.authority = snapshot.authority
          const user = { ...made.user, billingAccountId }
          const answer = yield* Effect.result(Effect.scoped(leased({ ...made, user }, request)))
          const expected = Cases.permits(snapshot)
          assert.strictEqual(made.world.looks, expected === undefined ? 0 : 1)
          if (Result.isSuccess(answer)) {
            assert.strictEqual(answer.success.permit.connectionId, expected?.id)
          } else {
            assert.isUndefined(expected)
            assert.strictEqual(answer.failure.code, "policy_denied")
          }
        }
      }),
    { arbitrary: { runs: 100, seed: "connections-3" } }
  )

  it.effect("records a denial with its reason, and says what to do", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      made.world.authority = { ...BrokerWorld.authority, rules: [] }
      const error = yield* refused(made)
      assert.strictEqual(error._tag, "ConnectionDenied")
      assert.include(error.message, "policy_denied")
      assert.include(error.message, "Ask its owner for a grant")
      assert.deepStrictEqual(yield* eventsOf(made), ["denied: connection_not_granted"])
      assert.strictEqual(made.world.looks, 0)
    })
  )

  it.effect(
    "records a denial also for a grant that does not exist, and denies what no audit could store",
    () =>
      Effect.gen(function* () {
        yield* start
        const made = yield* BrokerWorld.make()
        const gone = new ConnectionDenied({ grantId: "grant-gone", purpose: "push", reason: "grant_revoked" })
        const user = { ...made.user, authority: Effect.fail(gone) }
        assert.strictEqual((yield* refused({ ...made, user }))._tag, "ConnectionDenied")
        assert.deepStrictEqual(yield* eventsOf(made), ["denied: grant_revoked"])
        for (const request of [
          { ...push, repository: `https://github.com/acme/${"x".repeat(2000)}` },
          { purpose: "tool_read" as const, toolId: "x".repeat(201), connection: "github" }
        ]) {
          assert.deepInclude(yield* refused(made, request), { reason: "invalid_request" })
        }
        const nameless = { ...made.user, billingAccountId: "" }
        assert.deepInclude(yield* refused({ ...made, user: nameless }), { reason: "invalid_request" })
        assert.strictEqual(made.world.looks, 0)
      })
  )

  const claimsOf = (claims: Issued["claims"], rest: Partial<Issued> = {}) => ({
    ...BrokerWorld.issued,
    claims: {
      account: "account-a",
      connection: "github",
      server: "https://github.com",
      repository: ["https://github.com/acme/app"],
      ...claims
    },
    ...rest
  })

  const states = ["account", "connection", "server", "repository", "tool"] as const

  it.effect.each<[Claim, Issued]>([
    ["account", claimsOf({ account: "account-b" })],
    ["account", claimsOf({ account: undefined })],
    ["connection", claimsOf({ connection: "gitlab" })],
    ["server", claimsOf({ server: "https://evil.example" })],
    ["repository", claimsOf({ repository: ["https://github.com/acme/other"] })],
    ["repository", claimsOf({ repository: ["https://github.com/acme/app", "https://github.com/acme/b"] })],
    ["repository", claimsOf({ repository: [] })],
    ["repository", claimsOf({ repository: undefined })],
    ["tool", claimsOf({ tool: "github__issues" })],
    ["expiry", claimsOf({}, { expiresAt: Cases.permitted.now })],
    ["expiry", claimsOf({}, { expiresAt: new Date(Number.NaN) })],
    ["format", claimsOf({}, { secret: Redacted.make("planted-token\nusername=evil") })],
    ["format", claimsOf({}, { secret: Redacted.make("") })],
    ["format", claimsOf({}, { secret: Redacted.make("planted-token".repeat(2000)) })],
    ["format", claimsOf({}, { username: "a:b" })]
  ])("never uses a credential whose %s is not as permitted: %#", ([claim, answer]) =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make(states)
      made.world.issue = Effect.succeed(answer)
      const error = yield* refused(made)
      assert.deepInclude(error, { _tag: "CredentialMismatch", claim })
      assert.strictEqual(made.world.revoked, 1, "the credential is made invalid")
      assert.deepStrictEqual(yield* eventsOf(made), ["failed: CredentialMismatch"])
      assert.notInclude(yield* seen(made, error, new ConnectionError({ reason: error })), BrokerWorld.planted)
    })
  )

  it.effect("accepts the names of a repository that its server takes for the same, and no others", () =>
    Effect.gen(function* () {
      yield* start
      for (const [name, ignoresCase, events] of [
        ["app/", false, ["issued", "ended"]],
        ["App.git", true, ["issued", "ended"]],
        ["App.git", false, ["failed: CredentialMismatch"]]
      ] as const) {
        const made = yield* BrokerWorld.make(states, ignoresCase)
        made.world.issue = Effect.succeed(claimsOf({ repository: [`https://github.com/acme/${name}`] }))
        yield* Effect.exit(Effect.scoped(leased(made)))
        assert.deepStrictEqual(yield* eventsOf(made), [...events])
      }
    })
  )

  it.effect("does not wait for a slow issuer, and can be interrupted while it waits", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      made.world.issue = Effect.never
      const waiting = yield* Effect.forkChild(refused(made))
      yield* TestClock.adjust(`${sourceSecondsMax} seconds`)
      const ended = waiting.pollUnsafe()
      // A use that still waits must end for the test to fail.
      yield* TestClock.adjust("2 hours")
      assert.isDefined(ended)
      const error = yield* Fiber.join(waiting)
      assert.strictEqual(error._tag, "SourceUnavailable")
      assert.isTrue(error.isRetryable)
      assert.deepStrictEqual(yield* eventsOf(made), ["failed: SourceUnavailable"])
      const interrupted = yield* Effect.forkChild(refused(made))
      const leaving = yield* Effect.forkChild(Fiber.interrupt(interrupted))
      yield* TestClock.adjust(`${leavingSecondsMax} seconds`)
      yield* Fiber.join(leaving)
    })
  )

  it.effect("makes a credential invalid that comes after its caller has waited for too long", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      const came = yield* Deferred.make<void>()
      const dropped = yield* Deferred.make<void>()
      made.world.issue = Effect.as(Deferred.await(came), BrokerWorld.issued)
      made.world.revoke = Deferred.succeed(dropped, undefined)
      const waiting = yield* Effect.forkChild(refused(made))
      yield* TestClock.adjust(`${sourceSecondsMax} seconds`)
      assert.strictEqual((yield* Fiber.join(waiting))._tag, "SourceUnavailable")
      yield* Deferred.succeed(came, undefined)
      yield* Deferred.await(dropped)
      assert.strictEqual(made.world.revoked, 1)
      assert.deepStrictEqual(yield* eventsOf(made), ["failed: SourceUnavailable"])
    })
  )

  it.effect("leaves no credential valid, and an entry for each, wherever a run is interrupted", () =>
    Effect.gen(function* () {
      yield* start
      for (let before = 0; before < 60; before++) {
        const made = yield* BrokerWorld.make()
        let issued = 0
        const yields = Effect.forEach(Array.from({ length: 5 }), () => Effect.yieldNow)
        made.world.issue = Effect.gen(function* () {
          yield* yields
          issued += 1
          return BrokerWorld.issued
        })
        const using = yield* Effect.forkChild(Effect.scoped(Effect.andThen(leased(made), yields)))
        for (let at = 0; at < before; at++) yield* Effect.yieldNow
        yield* Fiber.interrupt(using)
        assert.strictEqual(issued, made.world.looks, "the issuer is not interrupted")
        assert.strictEqual(made.world.revoked, issued, `after ${before} steps`)
        const events = (yield* eventsOf(made)).join()
        assert.include(
          made.world.looks === 0 ? [""] : ["failed: Interrupted", "issued,ended"],
          events,
          `after ${before} steps`
        )
      }
    })
  )

  it.effect("records a use whose source has a defect", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      made.world.issue = Effect.die(new Error("planted-token"))
      yield* Effect.exit(Effect.scoped(leased(made)))
      assert.deepStrictEqual(yield* eventsOf(made), ["failed: Defect"])
    })
  )

  it.effect("bounds the uses per minute of a run and of an account, before anything is looked at", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make([], false, { ofRun: 3, ofAccount: 5 })
      const tags = (runId: string, times: number) =>
        Effect.forEach(Array.from({ length: times }), () =>
          Effect.match(Effect.scoped(leased({ ...made, user: { ...made.user, runId } })), {
            onFailure: ({ reason }) => (reason._tag === "TooManyUses" ? reason.whose : reason._tag),
            onSuccess: () => "used"
          })
        )
      assert.deepStrictEqual(yield* tags("run-1", 5), ["used", "used", "used", "run", "run"])
      assert.deepStrictEqual(yield* tags("run-2", 3), ["used", "used", "account"])
      assert.strictEqual(made.world.looks, 5)
      const error = yield* Effect.flip(Effect.scoped(leased(made)))
      assert.deepStrictEqual([error.code, error.isRetryable], ["unavailable", true])
      assert.match(error.message, /5 times per minute.*Try again in 60 s/u)
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(yield* tags("run-1", 1), ["used"])
    })
  )

  it.effect("makes the credential of an interrupted use invalid", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      made.world.revoke = Effect.yieldNow
      const begun = yield* Deferred.make<void>()
      const use = Effect.andThen(Deferred.succeed(begun, undefined), Effect.never)
      const using = yield* Effect.forkChild(Effect.scoped(Effect.andThen(leased(made), use)))
      yield* Deferred.await(begun)
      yield* Fiber.interrupt(using)
      assert.strictEqual(made.world.revoked, 1)
      assert.deepStrictEqual(yield* eventsOf(made), ["issued", "ended"])
    })
  )

  it.effect("does not wait for an issuer that does not take a credential back", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      made.world.revoke = Effect.never
      const ended = yield* Effect.forkChild(Effect.scoped(leased(made)))
      yield* TestClock.adjust(`${sourceSecondsMax} seconds`)
      yield* Fiber.join(ended)
      assert.deepStrictEqual(yield* eventsOf(made), ["issued", "ended"])
    })
  )

  it.effect("hands out nothing if the audit cannot be written", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      made.world.issue = Effect.sync(() => {
        made.world.isUp = false
        return BrokerWorld.issued
      })
      const error = yield* refused(made)
      assert.strictEqual(error._tag, "ConnectionStoreUnavailable")
      assert.strictEqual(made.world.revoked, 1)
      made.world.looks = 0
      assert.strictEqual((yield* refused(made))._tag, "ConnectionStoreUnavailable")
      assert.strictEqual(made.world.looks, 0)
    })
  )

  it.effect("refuses a kind for which this host has no source", () =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      made.world.connections = made.world.connections.map((one) => ({ ...one, means: { kind: "gitlab" } }))
      const error = yield* refused(made)
      assert.strictEqual(error._tag, "SourceRefused")
      assert.include(error.message, "gitlab")
    })
  )

  /** Opens a lease, changes the world, and returns how the lease ended after some seconds. */
  const endOf = (change: (made: Made, leaseId: string) => Effect.Effect<unknown, unknown>, seconds: number) =>
    Effect.gen(function* () {
      yield* start
      const made = yield* BrokerWorld.make()
      const lease = yield* leased(made)
      const ended = yield* Effect.forkChild(Effect.provideContext(Effect.flip(lease.ended), made.context))
      yield* TestClock.adjust("20 seconds")
      assert.isUndefined(ended.pollUnsafe(), "it is valid until something changes")
      yield* Effect.orDie(change(made, lease.id))
      yield* TestClock.adjust(`${seconds} seconds`)
      const exit = ended.pollUnsafe()
      assert.isDefined(exit, "it has ended")
      const { reason } = yield* Fiber.join(ended)
      assert.notInclude(yield* seen(made, reason), BrokerWorld.planted)
      return reason._tag === "LeaseEnded" ? reason.why : reason._tag
    }).pipe(Effect.scoped)

  it.effect("ends when the connection is revoked, within the time between two checks", () =>
    Effect.gen(function* () {
      const why = yield* endOf(
        ({ world }) =>
          Effect.sync(() => {
            world.connections = world.connections.map((one) => ({ ...one, revokedAt: new Date() }))
          }),
        watchSeconds
      )
      assert.strictEqual(why, "revoked")
    })
  )

  it.effect("ends when the grant is revoked, or no longer allows the use", () =>
    Effect.gen(function* () {
      for (const changed of [{ revokedAt: new Date() }, { rules: [] }, { repositories: [] }]) {
        const why = yield* endOf(
          ({ world }) =>
            Effect.sync(() => {
              world.authority = { ...world.authority, ...changed }
            }),
          watchSeconds
        )
        assert.strictEqual(why, "revoked")
      }
    })
  )

  it.effect("ends when the lease itself is revoked by its account, and by no other", () =>
    Effect.gen(function* () {
      const why = yield* endOf(
        ({ broker }, leaseId) =>
          Effect.gen(function* () {
            assert.isFalse(yield* broker.revokeLease("account-b", leaseId))
            assert.isFalse(yield* broker.revokeLease("account-a", "lease-unknown"))
            assert.isTrue(yield* broker.revokeLease("account-a", leaseId))
          }),
        watchSeconds
      )
      assert.strictEqual(why, "revoked")
    })
  )

  it.effect("ends at its expiry", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* endOf(() => Effect.void, 580), "expired")
    })
  )

  it.effect("survives a short outage of the store, and ends after a long one", () =>
    Effect.gen(function* () {
      const down = ({ world }: Made) =>
        Effect.sync(() => {
          world.isUp = false
        })
      assert.strictEqual(yield* endOf(down, unverifiedSecondsMax), "unverified")
      const shortly = (made: Made) =>
        Effect.gen(function* () {
          yield* down(made)
          yield* TestClock.adjust(`${unverifiedSecondsMax - 10} seconds`)
          made.world.isUp = true
        })
      assert.strictEqual(yield* endOf(shortly, 580), "expired")
    })
  )

  it("names the code and the reason of every error", () => {
    const error = new ConnectionError({
      reason: Result.getOrThrow(
        Result.flip(ConnectionDecision.decide({ ...Cases.permitted, connections: [] }))
      )
    })
    assert.deepStrictEqual([error.code, error.isRetryable], ["policy_denied", false])
  })
})
