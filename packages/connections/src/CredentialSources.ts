/**
 * The sources of this package: tokens of the host, stored tokens, OAuth refresh tokens, and an HTTP service.
 *
 * `@cogni/sandbox-git-relay` has those of GitHub Apps and GitLab.
 */
import type { Effect, Redacted } from "effect"
import type { Connection } from "./Connection.ts"
import type { CredentialSource } from "./CredentialSource.ts"
import * as BrokerSource from "./internal/sources/BrokerSource.ts"
import * as EnvironmentSource from "./internal/sources/EnvironmentSource.ts"
import * as OAuthSource from "./internal/sources/OAuthSource.ts"
import * as TokenSource from "./internal/sources/TokenSource.ts"

/** A token in the environment of the host process, which the host offers to all accounts. */
type HostToken = EnvironmentSource.HostToken

/** Returns the sources, for the `sources` of a broker. */
export const make = (tokens: ReadonlyArray<HostToken> = []): ReadonlyArray<CredentialSource> => [
  EnvironmentSource.make(tokens),
  TokenSource.make,
  OAuthSource.make,
  BrokerSource.make
]

/** Describes tokens of the host as connections, for the `hostConnections` of a broker. */
export const hostConnections: (tokens: ReadonlyArray<HostToken>) => ReadonlyArray<Connection> =
  EnvironmentSource.connectionsOf

/** Encodes the secret of a new connection of the kind `oauth`, before it is encrypted. */
export const oauthSecret: (secret: {
  readonly refreshToken: Redacted.Redacted<string>
  readonly clientSecret?: Redacted.Redacted<string>
}) => Effect.Effect<Redacted.Redacted<string>> = OAuthSource.secretOf
