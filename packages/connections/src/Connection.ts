/**
 * A connection: access of one account to one server, such as a GitHub App installation or a stored token.
 *
 * A connection says where a credential comes from and what it may be used for. It never contains the credential.
 */
import { Schema } from "effect"
import {
  AnyName,
  ConnectionName,
  hostPrefix,
  Identifier,
  LifetimeSeconds,
  lifetimeSecondsMax,
  Purposes,
  RepositoryPatterns,
  SecretUrl,
  Server,
  ToolPatterns
} from "./internal/ConnectionFields.ts"

export { type Purpose, purposes } from "./internal/ConnectionFields.ts"

/** Where the credentials of a connection come from. None of these fields is secret. */
export const Means = Schema.Union([
  /** A token in the environment of the host process. */
  Schema.Struct({
    kind: Schema.Literal("environment"),
    variable: Schema.String.check(Schema.isPattern(/^[A-Z][A-Z0-9_]{0,99}$/u))
  }),
  /** An installation of the host's GitHub App. Each use gets a new token for one repository. */
  Schema.Struct({
    kind: Schema.Literal("github_app"),
    installationId: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }))
  }),
  /** A token of a GitLab server, encrypted in the database. Its scopes and expiry are checked before each use. */
  Schema.Struct({ kind: Schema.Literal("gitlab") }),
  /** A token of any server, encrypted in the database. */
  Schema.Struct({ kind: Schema.Literal("token") }),
  /** A refresh token, encrypted in the database. Each use gets a new access token. */
  Schema.Struct({
    kind: Schema.Literal("oauth"),
    tokenUrl: SecretUrl,
    clientId: Identifier
  }),
  /** Another service, which issues a credential for each use. */
  Schema.Struct({ kind: Schema.Literal("broker"), url: SecretUrl })
])

export type Means = typeof Means.Type

export type Kind = Means["kind"]

/** Kinds of which the database has an encrypted secret. */
export const sealedKinds: ReadonlySet<Kind> = new Set(["gitlab", "token", "oauth", "broker"])

/** Limits of a connection, whatever a grant allows. An absent list is no limit. */
export const ConnectionScope = Schema.Struct({
  purposes: Schema.optionalKey(Purposes),
  repositories: Schema.optionalKey(RepositoryPatterns),
  tools: Schema.optionalKey(ToolPatterns)
})

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

/** Returns the user name that servers expect with a credential of this kind. */
export const usernameOf = (kind: Kind): string =>
  kind === "gitlab" || kind === "oauth" ? "oauth2" : "x-access-token"

/** Describes a token in the environment of the host. */
export const ofHost = (
  name: string,
  options: { readonly variable: string; readonly server: string; readonly username: string }
): Connection => ({
  id: `${hostPrefix}${name}`,
  billingAccountId: null,
  name: `${hostPrefix}${name}`,
  server: options.server,
  username: options.username,
  means: { kind: "environment", variable: options.variable },
  scope: {},
  lifetimeSecondsMax,
  createdAt: new Date(0),
  expiresAt: null,
  revokedAt: null
})
