/**
 * Permission to run graphs and open sandboxes in a user's name and on their account.
 *
 * Pure: `check` decides whether a grant allows a graph now. A sandbox needs `allowSandbox` **and** a scope; a wildcard
 * scope alone never allows one.
 */
import { Result, Schema } from "effect"
import { GrantPermissions } from "./GrantPermissions.ts"
import type { PermissionDenied } from "./GrantPermissions.ts"
import { type GraphId, sandboxNamespace } from "../graphs/GraphId.ts"

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

export const ExecutionGrant = Schema.Struct({
  id: Identifier,
  userId: Identifier,
  billingAccountId: Identifier,
  /** `graph:execute:<graph id>`, or `graph:execute:*`. */
  scopes: Schema.Array(
    Schema.String.check(
      Schema.isPattern(/^graph:execute:(?:\*|[a-z0-9:-]{1,65})$/u, {
        expected: "a graph such as sandbox:agent, or *, after graph:execute:"
      })
    )
  ),
  allowSandbox: Schema.Boolean,
  /** Tools, models, repositories, budget and concurrent runs. */
  permissions: GrantPermissions,
  expiresAt: Schema.NullOr(Schema.DateFromString),
  revokedAt: Schema.NullOr(Schema.DateFromString),
  createdAt: Schema.DateFromString
})

export type ExecutionGrant = typeof ExecutionGrant.Type

const refusal = { grantId: Schema.String }

export class GrantNotFound extends Schema.TaggedError<GrantNotFound>()("GrantNotFound", refusal) {
  override get message(): string {
    return `there is no grant ${this.grantId}`
  }
}

export class GrantExpired extends Schema.TaggedError<GrantExpired>()("GrantExpired", refusal) {
  override get message(): string {
    return `grant ${this.grantId} has expired; ask its owner for a new one`
  }
}

export class GrantRevoked extends Schema.TaggedError<GrantRevoked>()("GrantRevoked", refusal) {
  override get message(): string {
    return `grant ${this.grantId} was revoked`
  }
}

export class GrantScopeMismatch extends Schema.TaggedError<GrantScopeMismatch>()("GrantScopeMismatch", {
  ...refusal,
  graphId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not cover ${this.graphId}; it needs that scope (grants create --graph ${this.graphId})`
  }
}

export class SandboxNotAllowed extends Schema.TaggedError<SandboxNotAllowed>()("SandboxNotAllowed", {
  ...refusal,
  graphId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not open sandboxes, and ${this.graphId} runs in one; it needs allowSandbox (grants create --allow-sandbox)`
  }
}

export class GrantAccountMismatch extends Schema.TaggedError<GrantAccountMismatch>()("GrantAccountMismatch", {
  ...refusal,
  billingAccountId: Schema.String
}) {
  override get message(): string {
    return `grant ${this.grantId} does not pay for account ${this.billingAccountId}; use the account that it was issued for`
  }
}

export class GrantReadOnly extends Schema.TaggedError<GrantReadOnly>()("GrantReadOnly", refusal) {
  override get message(): string {
    return `grant ${this.grantId} is read-only: it shows runs, and may not start, cancel, deliver or decide anything. Ask the operator for a grant without --read-only`
  }
}

export type GrantError =
  | GrantAccountMismatch
  | GrantNotFound
  | GrantExpired
  | GrantReadOnly
  | GrantRevoked
  | GrantScopeMismatch
  | SandboxNotAllowed
  | PermissionDenied

/** Checks that a grant is neither expired nor revoked, whatever it allows. */
export const checkStanding = (
  { expiresAt, id: grantId, revokedAt }: ExecutionGrant,
  now: Date
): Result.Result<void, GrantExpired | GrantRevoked> => {
  if (revokedAt !== null) return Result.fail(new GrantRevoked({ grantId }))
  return expiresAt !== null && expiresAt.getTime() <= now.getTime()
    ? Result.fail(new GrantExpired({ grantId }))
    : Result.succeed(undefined)
}

/** Checks that a grant may change something. */
export const checkWriting = ({
  id: grantId,
  permissions
}: Pick<ExecutionGrant, "id" | "permissions">): Result.Result<void, GrantReadOnly> =>
  permissions.readOnly === true ? Result.fail(new GrantReadOnly({ grantId })) : Result.succeed(undefined)

/** Checks that a grant allows a graph at a given time, or fails with the reason. */
export const check = (
  grant: ExecutionGrant,
  graphId: GraphId,
  now: Date
): Result.Result<void, GrantError> => {
  const grantId = grant.id
  const standing = checkStanding(grant, now)
  if (Result.isFailure(standing)) return standing
  const writing = checkWriting(grant)
  if (Result.isFailure(writing)) return writing
  if (!grant.scopes.some((scope) => scope === "graph:execute:*" || scope === `graph:execute:${graphId}`)) {
    return Result.fail(new GrantScopeMismatch({ grantId, graphId }))
  }
  if (graphId.startsWith(`${sandboxNamespace}:`) && !grant.allowSandbox) {
    return Result.fail(new SandboxNotAllowed({ grantId, graphId }))
  }
  return Result.succeed(undefined)
}

/** Checks that a grant pays for an account: only for its own. */
export const checkAccount = (
  grant: Pick<ExecutionGrant, "id" | "billingAccountId">,
  billingAccountId: string
): Result.Result<void, GrantAccountMismatch> =>
  grant.billingAccountId === billingAccountId
    ? Result.succeed(undefined)
    : Result.fail(new GrantAccountMismatch({ grantId: grant.id, billingAccountId }))
