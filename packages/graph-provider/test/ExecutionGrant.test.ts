/** The graphs that a grant allows and, above all, those that it does not allow. */
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { check, ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"

const now = new Date("2026-01-02T00:00:00Z")
const graphId = GraphId.make("sandbox:agent")

const grant: ExecutionGrant = {
  id: "grant-1",
  userId: "user-1",
  billingAccountId: "acct-1",
  scopes: ["graph:execute:sandbox:agent"],
  allowSandbox: true,
  permissions: {},
  expiresAt: null,
  revokedAt: null,
  createdAt: new Date("2026-01-01T00:00:00Z")
}

const verdict = (over: Partial<ExecutionGrant>, asked: GraphId = graphId) => {
  const result = check({ ...grant, ...over }, asked, now)
  return Result.isSuccess(result) ? "open" : result.failure._tag
}

describe("ExecutionGrant", () => {
  it("allows a graph with a scope and allowSandbox", () => {
    assert.strictEqual(verdict({}), "open")
    assert.strictEqual(verdict({ scopes: ["graph:execute:*"] }), "open")
  })

  it("never allows a sandbox with a wildcard scope alone", () => {
    assert.strictEqual(verdict({ scopes: ["graph:execute:*"], allowSandbox: false }), "SandboxNotAllowed")
    assert.strictEqual(
      verdict({ scopes: ["graph:execute:*"], allowSandbox: false }, GraphId.make("langgraph:chat")),
      "open"
    )
  })

  it("allows nothing with allowSandbox and no scope", () => {
    assert.strictEqual(verdict({ scopes: [] }), "GrantScopeMismatch")
    assert.strictEqual(verdict({ scopes: ["graph:execute:sandbox:other"] }), "GrantScopeMismatch")
  })

  it("expires at its time of expiry, not after it", () => {
    assert.strictEqual(verdict({ expiresAt: now }), "GrantExpired")
    assert.strictEqual(verdict({ expiresAt: new Date(now.getTime() + 1) }), "open")
  })

  it("reports a revoked grant as revoked, whatever else is wrong with it", () => {
    assert.strictEqual(verdict({ revokedAt: now, expiresAt: now, scopes: [] }), "GrantRevoked")
  })

  it.prop(
    "refuses every graph to a read-only grant, whatever its scopes",
    [ExecutionGrant, GraphId],
    ([any, name]) => {
      const permissions = { ...any.permissions, readOnly: true }
      const refused = check({ ...any, permissions, expiresAt: null, revokedAt: null }, name, now)
      return Result.isFailure(refused) && refused.failure._tag === "GrantReadOnly"
    }
  )

  it.prop("never allows a sandbox without allowSandbox", [ExecutionGrant, GraphId], ([any, name]) => {
    const asked = GraphId.make(`sandbox:${name.split(":")[1]}`)
    return Result.isFailure(check({ ...any, allowSandbox: false }, asked, now))
  })

  const Moment = Schema.Literals([-1, 0, 1])
  const Case = Schema.Struct({
    scopes: Schema.Array(
      Schema.Literals(["graph:execute:*", "graph:execute:sandbox:agent", "graph:execute:sandbox:other"])
    ),
    allowSandbox: Schema.Boolean,
    expires: Schema.NullOr(Moment),
    revoked: Schema.NullOr(Moment),
    asked: Schema.Literals(["sandbox:agent", "langgraph:chat"])
  })

  it.prop(
    "allows exactly what is not revoked, not expired, in scope and, for a sandbox, permitted",
    [Case],
    ([{ allowSandbox, asked, expires, revoked, scopes }]) => {
      const at = (moment: number | null) => (moment === null ? null : new Date(now.getTime() + moment))
      const opens = verdict(
        { scopes, allowSandbox, expiresAt: at(expires), revokedAt: at(revoked) },
        GraphId.make(asked)
      )
      const isInScope =
        scopes.includes("graph:execute:*") || scopes.some((scope) => scope === `graph:execute:${asked}`)
      const isOpen =
        revoked === null &&
        (expires === null || expires > 0) &&
        isInScope &&
        (allowSandbox || asked !== "sandbox:agent")
      assert.strictEqual(opens === "open", isOpen, opens)
    },
    { arbitrary: { runs: 10_000, seed: "grants-1" } }
  )

  it("is decoded from its JSON", () => {
    const read = Schema.decodeUnknownSync(ExecutionGrant)({
      ...grant,
      expiresAt: "2026-02-01T00:00:00.000Z",
      createdAt: "2026-01-01T00:00:00.000Z"
    })
    assert.strictEqual(read.expiresAt?.getTime(), Date.UTC(2026, 1, 1))
  })
})
