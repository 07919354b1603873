/** Leases of connections as credentials of the relay: granted, absent, denied, unavailable, and ended too early. */
import { assert, describe, it } from "@effect/vitest"
import { ConnectionBroker, type Lease } from "@cogni/sandbox-connections/ConnectionBroker"
import { ConnectionError } from "@cogni/sandbox-connections/ConnectionError"
import { ConnectionDenied, SourceUnavailable } from "@cogni/sandbox-connections/ConnectionReason"
import * as BrokerCredentials from "@cogni/sandbox-git-relay/BrokerCredentials"
import { GitCredentials } from "@cogni/sandbox-git-relay/GitCredentials"
import { Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { LeaseEnded } from "../../connections/src/internal/UseReasons.ts"

const request = { url: "https://github.com/acme/app.git", purpose: "push" } as const

const leaseOf = (ended: Lease["ended"]): Lease => ({
  id: "lease-1",
  permit: {
    billingAccountId: "acme",
    grantId: "grant-1",
    connectionId: "connection-1",
    connectionName: "github",
    server: "https://github.com",
    purpose: "push",
    repository: request.url,
    toolId: undefined,
    expiresAt: new Date(1),
    runId: undefined
  },
  username: "x-access-token",
  secret: Redacted.make("planted-token"),
  expiresAt: new Date(1),
  ended
})

/** Asks for a credential, of a broker that gives this answer. */
const given = (answer: Effect.Effect<Lease, ConnectionError>) =>
  Effect.flatMap(GitCredentials, (credentials) => credentials.get(request)).pipe(
    Effect.provide(
      Layer.provide(
        BrokerCredentials.layer,
        Layer.succeed(ConnectionBroker, { lease: () => answer, revokeLease: () => Effect.succeed(false) })
      )
    )
  )

const failing = (reason: ConnectionError["reason"]) => given(Effect.fail(new ConnectionError({ reason })))

const denied = (reason: ConnectionDenied["reason"]) =>
  failing(new ConnectionDenied({ grantId: "grant-1", purpose: "push", reason }))

describe("BrokerCredentials", () => {
  it.effect("is the credential of a lease, and ends with it", () =>
    Effect.gen(function* () {
      const revoke = yield* Deferred.make<never, ConnectionError>()
      const credential = yield* given(Effect.succeed(leaseOf(Deferred.await(revoke))))
      assert.strictEqual(credential?.username, "x-access-token")
      const use = yield* Effect.forkChild(Effect.flip(credential!.ended!))
      const reason = new LeaseEnded({ connection: "github", why: "revoked" })
      yield* Deferred.fail(revoke, new ConnectionError({ reason }))
      const error = yield* Fiber.join(use)
      assert.strictEqual(error._tag, "CredentialsUnavailable")
      assert.include(error.message, "was revoked. Ask the owner of the account")
      assert.isFalse(error.isRetryable)
    }).pipe(Effect.scoped)
  )

  it.effect("accesses a server without a credential if there is no connection to it", () =>
    Effect.gen(function* () {
      assert.isUndefined(yield* denied("no_connection"))
    }).pipe(Effect.scoped)
  )

  it.effect("says why a use is denied, and whether a retry can help", () =>
    Effect.gen(function* () {
      for (const reason of [
        "no_user",
        "grant_revoked",
        "connection_revoked",
        "repository_not_granted"
      ] as const) {
        const error = yield* Effect.flip(denied(reason))
        assert.strictEqual(error._tag, "CredentialsDenied")
        assert.match(error.message, /^policy_denied: no credential to push: .+\. .+$/u)
      }
      const said = { connection: "github", detail: "its issuer cannot be reached", remedy: "Try again" }
      const error = yield* Effect.flip(failing(new SourceUnavailable(said)))
      assert.strictEqual(error._tag, "CredentialsUnavailable")
      assert.isTrue(error.isRetryable)
      assert.strictEqual(
        error.message,
        "no git credential: connection github: its issuer cannot be reached. Try again"
      )
    }).pipe(Effect.scoped)
  )
})
