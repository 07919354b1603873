/** Connections that a grant opens: the host's own without rules, and only the named ones with rules. */
import { assert, describe, it } from "@effect/vitest"
import { decide } from "@cogni/sandbox-connections/ConnectionDecision"
import * as GrantConnections from "../src/grants/GrantConnections.ts"
import type { ExecutionGrant } from "../src/grants/ExecutionGrant.ts"
import { GrantStoreUnavailable } from "../src/grants/GrantError.ts"
import { Effect, Result } from "effect"

const grant: ExecutionGrant = {
  id: "grant-1",
  userId: "ana",
  billingAccountId: "acme",
  scopes: ["graph:execute:*"],
  allowSandbox: true,
  permissions: { repositories: ["https://github.com/acme/*"] },
  expiresAt: null,
  revokedAt: null,
  createdAt: new Date(0)
}

const connectionOf = (name: string, billingAccountId: string | null) => ({
  id: name,
  billingAccountId,
  name,
  server: "https://github.com",
  username: "x-access-token",
  means: { kind: "token" as const },
  scope: {},
  lifetimeSecondsMax: 600,
  createdAt: new Date(0),
  expiresAt: null,
  revokedAt: null
})

const own = connectionOf("github", "acme")
const ofHost = connectionOf("host/github-token", null)

const chosen = (
  granted: ExecutionGrant,
  repository = "https://github.com/acme/app",
  connections = [own, ofHost]
) =>
  Result.match(
    decide({
      authority: GrantConnections.authorityOf(granted),
      connections,
      request: { billingAccountId: "acme", purpose: "push", repository },
      now: new Date(1)
    }),
    { onFailure: ({ reason }) => reason, onSuccess: ({ connectionName }) => connectionName }
  )

describe("GrantConnections", () => {
  it("opens the host's own connections without rules, and never more than its repositories", () => {
    assert.strictEqual(chosen(grant), "host/github-token")
    for (const [granted, repository] of [
      [grant, "https://github.com/evil/app"],
      [{ ...grant, permissions: {} }, "https://github.com/acme/app"]
    ] as const) {
      assert.strictEqual(chosen(granted, repository, [ofHost]), "repository_not_granted")
      assert.strictEqual(chosen(granted, repository), "connection_not_granted")
    }
  })

  it("opens only the connections of its rules", () => {
    const withRules = (connection: string): ExecutionGrant => ({
      ...grant,
      permissions: { ...grant.permissions, connections: [{ connection, purposes: ["push"] }] }
    })
    assert.strictEqual(chosen(withRules("github")), "github")
    assert.strictEqual(chosen(withRules("*")), "github")
    assert.strictEqual(chosen(withRules("host/*")), "host/github-token")
    assert.strictEqual(
      chosen({ ...grant, permissions: { ...grant.permissions, connections: [] } }),
      "connection_not_granted"
    )
  })

  it.effect("reads the grant again for each use, and denies a use without it", () =>
    Effect.gen(function* () {
      let found: ExecutionGrant | undefined = grant
      const user = GrantConnections.userOf(
        { find: () => Effect.sync(() => found) },
        { grantId: "grant-1", billingAccountId: "acme", runId: "run-12345678" }
      )
      assert.isNull((yield* user.authority).revokedAt)
      found = { ...grant, revokedAt: new Date(2) }
      assert.isNotNull((yield* user.authority).revokedAt)
      found = undefined
      assert.deepInclude(yield* Effect.flip(user.authority), { reason: "grant_revoked" })
      const down = GrantConnections.userOf(
        { find: () => Effect.fail(new GrantStoreUnavailable({ detail: "is down", remedy: "Start it" })) },
        { grantId: "grant-1", billingAccountId: "acme", runId: "run-12345678" }
      )
      assert.strictEqual((yield* Effect.flip(down.authority))._tag, "ConnectionStoreUnavailable")
    })
  )
})
