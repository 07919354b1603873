/** Decisions about connections: written out, and compared with a second implementation. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as ConnectionDecision from "@cogni/sandbox-connections/ConnectionDecision"
import * as Cases from "./ConnectionCases.ts"

const decided = (snapshot: ConnectionDecision.Snapshot) =>
  Result.match(ConnectionDecision.decide(snapshot), {
    onFailure: ({ reason }) => reason,
    onSuccess: (permit) => permit
  })

/** The snapshot of a permitted push; each row below changes one fact. */
const permitted = Cases.permitted

describe("ConnectionDecision", () => {
  it("permits exactly what grant, connection and request have in common", () => {
    assert.deepStrictEqual(decided(permitted), {
      billingAccountId: "account-a",
      grantId: "grant-1",
      connectionId: "connection-a",
      connectionName: "github",
      server: "https://github.com",
      purpose: "push",
      repository: "https://github.com/acme/app.git",
      toolId: undefined,
      expiresAt: new Date("2027-01-01T00:10:00.000Z"),
      runId: "run-12345678"
    })
  })

  it("says which rule denied a use", () => {
    const { authority, connections, request } = permitted
    const [connection] = connections
    const [rule] = authority.rules
    const withConnection = (changed: object) => ({
      ...permitted,
      connections: [{ ...connection!, ...changed }]
    })
    const withAuthority = (changed: object) => ({ ...permitted, authority: { ...authority, ...changed } })
    const withRequest = (changed: object) => ({ ...permitted, request: { ...request, ...changed } })
    const past = new Date("2026-12-31T23:59:59.000Z")
    assert.deepStrictEqual(
      {
        revokedGrant: decided(withAuthority({ revokedAt: past })),
        expiredGrant: decided(withAuthority({ expiresAt: permitted.now })),
        invalidDate: decided(withAuthority({ expiresAt: new Date(Number.NaN) })),
        otherAccountOfGrant: decided(withAuthority({ billingAccountId: "account-b" })),
        otherAccountOfConnection: decided(withConnection({ billingAccountId: "account-b" })),
        revoked: decided(withConnection({ revokedAt: past })),
        expired: decided(withConnection({ expiresAt: permitted.now })),
        otherServer: decided(withConnection({ server: "https://github.com:8443" })),
        noConnection: decided({ ...permitted, connections: [] }),
        otherName: decided(withRequest({ connection: "gitlab" })),
        noRule: decided(withAuthority({ rules: [] })),
        otherRule: decided(withAuthority({ rules: [{ ...rule, connection: "gitlab" }] })),
        otherPurpose: decided(withAuthority({ rules: [{ ...rule, purposes: ["fetch"] }] })),
        purposeOfConnection: decided(withConnection({ scope: { purposes: ["fetch"] } })),
        repositoryOfGrant: decided(withAuthority({ repositories: [] })),
        repositoryOfRule: decided(
          withAuthority({ rules: [{ ...rule, repositories: ["https://github.com/acme/other"] }] })
        ),
        repositoryOfConnection: decided(withConnection({ scope: { repositories: [] } })),
        otherRepository: decided(withRequest({ repository: "https://github.com/evil/app.git" })),
        toolOfGrant: decided({
          ...withAuthority({ rules: [{ ...rule, purposes: ["tool_read"] }] }),
          request: { ...request, purpose: "tool_read", toolId: "github__issues" }
        }),
        pushWithTool: decided(withRequest({ toolId: "github__issues" })),
        toolWithoutName: decided(withRequest({ purpose: "tool_read" })),
        toolWithoutTarget: decided({
          ...permitted,
          request: { billingAccountId: "account-a", purpose: "tool_read", toolId: "github__issues" }
        }),
        pathOfHost: decided(withRequest({ repository: "/srv/app" })),
        strangeUrl: decided(withRequest({ repository: "https://github.com@evil.example/acme/app" })),
        dotSegments: decided(withRequest({ repository: "https://github.com/acme/../evil/app" }))
      },
      {
        revokedGrant: "grant_revoked",
        expiredGrant: "grant_expired",
        invalidDate: "grant_expired",
        otherAccountOfGrant: "account_mismatch",
        otherAccountOfConnection: "no_connection",
        revoked: "connection_revoked",
        expired: "connection_expired",
        otherServer: "no_connection",
        noConnection: "no_connection",
        otherName: "no_connection",
        noRule: "connection_not_granted",
        otherRule: "connection_not_granted",
        otherPurpose: "purpose_not_granted",
        purposeOfConnection: "purpose_not_granted",
        repositoryOfGrant: "repository_not_granted",
        repositoryOfRule: "repository_not_granted",
        repositoryOfConnection: "repository_not_granted",
        otherRepository: "repository_not_granted",
        toolOfGrant: "tool_not_granted",
        pushWithTool: "invalid_request",
        toolWithoutName: "invalid_request",
        toolWithoutTarget: "invalid_request",
        pathOfHost: "invalid_request",
        strangeUrl: "invalid_request",
        dotSegments: "invalid_request"
      }
    )
  })

  it("permits a use without a repository only if neither the rule nor the connection names repositories", () => {
    const { authority, connections } = permitted
    const limits = { repositories: ["**"] }
    const asked = (ofRule: object, ofConnection: object) =>
      decided({
        ...permitted,
        authority: {
          ...authority,
          rules: [{ ...authority.rules[0]!, purposes: ["tool_read"], ...ofRule }],
          tools: ["*"]
        },
        connections: [{ ...connections[0]!, scope: ofConnection }],
        request: {
          billingAccountId: "account-a",
          purpose: "tool_read",
          connection: "github",
          toolId: "http__get"
        }
      })
    assert.strictEqual(asked(limits, {}), "repository_not_granted")
    assert.strictEqual(asked({}, limits), "repository_not_granted")
    assert.containSubset(asked({}, {}), { toolId: "http__get", repository: undefined })
  })

  it("ends a permit at the earliest of all limits", () => {
    const { authority, connections, now, request } = permitted
    const soon = new Date(now.getTime() + 1500)
    const endOf = (changed: Partial<ConnectionDecision.Snapshot>) => {
      const permit = decided({ ...permitted, ...changed })
      return typeof permit === "string" ? permit : permit.expiresAt.getTime() - now.getTime()
    }
    const [rule] = authority.rules
    assert.deepStrictEqual(
      {
        request: endOf({ request: { ...request, lifetimeSeconds: 5 } }),
        connection: endOf({ connections: [{ ...connections[0]!, lifetimeSecondsMax: 7 }] }),
        rule: endOf({ authority: { ...authority, rules: [{ ...rule!, lifetimeSecondsMax: 9 }] } }),
        grant: endOf({ authority: { ...authority, expiresAt: soon } }),
        expiry: endOf({ connections: [{ ...connections[0]!, expiresAt: soon }] })
      },
      { request: 5000, connection: 7000, rule: 9000, grant: 1500, expiry: 1500 }
    )
  })

  it("prefers a connection of the account to one of the host, and a live one to one that has ended", () => {
    const { authority, connections } = permitted
    const [own] = connections
    const host = { ...own!, id: "host/t", name: "host/t", billingAccountId: null, createdAt: new Date(0) }
    const older = { ...own!, id: "older", createdAt: new Date(1) }
    const ended = { ...own!, id: "ended", createdAt: new Date(0), revokedAt: new Date(2) }
    const rules = [{ ...authority.rules[0]!, connection: "**" }]
    const chosen = (all: ReadonlyArray<typeof own>, names = "**") => {
      const permit = decided({
        ...permitted,
        authority: { ...authority, rules: [{ ...rules[0]!, connection: names }] },
        connections: all.flatMap((one) => one ?? [])
      })
      return typeof permit === "string" ? permit : permit.connectionId
    }
    assert.strictEqual(chosen([host, ended, own, older]), "older")
    assert.strictEqual(chosen([host, ended], "*"), "connection_revoked")
    assert.strictEqual(chosen([host], "*"), "connection_not_granted")
    assert.strictEqual(chosen([host]), "host/t")
    assert.strictEqual(chosen([host, own], "host/*"), "host/t")
  })

  it("does not end the limits of a connection where a token of the host begins", () => {
    const { authority, connections, now } = permitted
    const [own] = connections
    const host = { ...own!, id: "host/t", name: "host/t", billingAccountId: null }
    const decidedWith = (changed: object, ...names: ReadonlyArray<string>) => {
      const permit = decided({
        ...permitted,
        authority: {
          ...authority,
          rules: names.map((connection) => ({ ...authority.rules[0]!, connection }))
        },
        connections: [host, { ...own!, ...changed }]
      })
      return typeof permit === "string" ? permit : permit.connectionId
    }
    const revokedAt = new Date(0)
    assert.deepStrictEqual(
      {
        repository: decidedWith({ scope: { repositories: ["https://github.com/acme/other"] } }, "**"),
        purpose: decidedWith({ scope: { purposes: ["fetch"] } }, "*", "host/*"),
        expired: decidedWith({ expiresAt: now }, "*", "host/*"),
        removed: decidedWith({ revokedAt }, "**"),
        removedAndHostNamed: decidedWith({ revokedAt }, "*", "host/*"),
        notOpened: decidedWith({ scope: { purposes: ["fetch"] } }, "host/*")
      },
      {
        repository: "repository_not_granted",
        purpose: "purpose_not_granted",
        expired: "connection_expired",
        removed: "connection_revoked",
        removedAndHostNamed: "host/t",
        notOpened: "host/t"
      }
    )
  })

  it("permits no credential for another server than the request names", () => {
    const { request } = permitted
    const asked = (server: string) => decided({ ...permitted, request: { ...request, server } })
    assert.strictEqual(asked("https://evil.example"), "no_connection")
    assert.containSubset(asked("https://github.com"), { connectionId: "connection-a" })
  })

  it.prop(
    "permits what a second implementation permits, and nothing else",
    { drawn: Cases.Drawn },
    ({ drawn }) => {
      const snapshot = Cases.snapshotOf(drawn)
      const permit = decided(snapshot)
      const expected = Cases.permits(snapshot)
      assert.strictEqual(typeof permit === "string" ? undefined : permit.connectionId, expected?.id)
      Cases.counted(permit)
      const { server, ...anywhere } = snapshot.request
      const meant = Cases.permits({ ...snapshot, request: anywhere })
      if (server !== undefined && meant !== undefined && meant.server !== server) {
        Cases.counted("for another server")
      }
    },
    { arbitrary: { runs: 2500, seed: "connections-1" } }
  )

  it("has seen enough cases of each outcome", () => {
    assert.isAbove(Cases.outcomes.get("permitted") ?? 0, 50)
    for (const reason of [
      "account_mismatch",
      "purpose_not_granted",
      "repository_not_granted",
      "no_connection",
      "for another server"
    ])
      assert.isAbove(Cases.outcomes.get(reason) ?? 0, 20, reason)
  })

  it.prop(
    "permits no more after a grant was narrowed",
    { drawn: Cases.Drawn, at: Cases.Places },
    ({ at, drawn }) => {
      const snapshot = Cases.snapshotOf(drawn)
      const { authority } = snapshot
      const without = <A>(all: ReadonlyArray<A>) => all.filter((_, index) => index !== at % 3)
      for (const narrowed of [
        { ...authority, rules: without(authority.rules) },
        { ...authority, repositories: without(authority.repositories) },
        { ...authority, tools: without(authority.tools) }
      ]) {
        const permit = decided({ ...snapshot, authority: narrowed })
        if (typeof permit === "string") continue
        const before = ConnectionDecision.decide({
          ...snapshot,
          connections: snapshot.connections.filter(({ id }) => id === permit.connectionId)
        })
        assert.isTrue(Result.isSuccess(before))
        if (Result.isSuccess(before)) {
          assert.isAtMost(permit.expiresAt.getTime(), before.success.expiresAt.getTime())
        }
      }
    },
    { arbitrary: { runs: 1000, seed: "connections-2" } }
  )
})
