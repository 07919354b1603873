/**
 * A connection: access of one account to one server, such as a GitHub App installation or a stored token.
 *
 * A connection says where a credential comes from and what it may be used for. It never contains the credential.
 */
import { Schema } from "effect"
import {
  AnyName,
  ConnectionName,
  ConnectionScope,
  Identifier,
  LifetimeSeconds,
  Means,
  Server
} from "./ConnectionFields.ts"

export type { Purpose } from "./ConnectionFields.ts"

export const Connection = Schema.Struct({
  id: Identifier,
  /** The account that it belongs to. `null` is a connection of the host, which it offers to all accounts. */
  billingAccountId: Schema.NullOr(Identifier),
  name: AnyName,
  /** The only server that gets its credentials. */
  server: Server,
  /** User name for git: `x-access-token` at GitHub, `oauth2` at GitLab. */
  username: Schema.String.check(
    Schema.isPattern(/^[\x21-\x39\x3b-\x7e]{1,200}$/u, { expected: "a user name without spaces and colons" })
  ),
  means: Means,
  scope: ConnectionScope,
  /** Longest lifetime of a lease, in seconds. */
  lifetimeSecondsMax: LifetimeSeconds,
  createdAt: Schema.DateFromString,
  expiresAt: Schema.NullOr(Schema.DateFromString),
  revokedAt: Schema.NullOr(Schema.DateFromString)
})

export type Connection = typeof Connection.Type

const { expiresAt, server, username } = Connection.fields

/** A connection to add to an account. */
export const ConnectionInput = Schema.Struct({
  billingAccountId: Identifier,
  name: ConnectionName,
  server,
  /** Default: that of the kind. */
  username: Schema.optionalKey(username),
  means: Means.check(
    Schema.makeFilter(({ kind }: Means) =>
      kind === "environment" ? "Expected a kind whose credentials belong to an account" : undefined
    )
  ),
  /** Default: everything that its credentials allow. */
  scope: Schema.optionalKey(ConnectionScope),
  /** Default: one hour. */
  lifetimeSecondsMax: Schema.optionalKey(LifetimeSeconds),
  expiresAt
})

export type ConnectionInput = typeof ConnectionInput.Type
