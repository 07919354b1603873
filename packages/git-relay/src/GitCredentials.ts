/**
 * Port that provides the credential of an origin: when it is needed, for one repository, and with only the rights that
 * the use requires.
 *
 * A credential is bound to one server. The relay passes it to git over a pipe, or to the forge's API in a header, and
 * does not store it.
 */
import { Context, Effect, Layer, type Redacted, type Scope } from "effect"
import type { CredentialsDenied, CredentialsUnavailable } from "./GitRelayError.ts"
import { serverOf } from "./Refs.ts"

export interface CredentialRequest {
  /** URL of the repository, as in `CloneRequest`; never a local path. */
  readonly url: string
  readonly purpose: "fetch" | "push" | "pull_request"
}

export interface GitCredential {
  /** `x-access-token` at GitHub, `oauth2` at GitLab. */
  readonly username: string
  readonly password: Redacted.Redacted<string>
  /** Fails when the credential becomes invalid while it is in use. Absent: it does not. */
  readonly ended?: Effect.Effect<never, CredentialsUnavailable> | undefined
}

export class GitCredentials extends Context.Service<
  GitCredentials,
  {
    /** Returns a credential for one use, until the scope closes. `undefined`: access the origin without one. */
    readonly get: (
      request: CredentialRequest
    ) => Effect.Effect<GitCredential | undefined, CredentialsDenied | CredentialsUnavailable, Scope.Scope>
  }
>()("@cogni/sandbox-git-relay/GitCredentials") {}

/** Provides no credentials: for public repositories and for repositories of this host. */
export const layerNone: Layer.Layer<GitCredentials> = Layer.succeed(GitCredentials, {
  get: () => Effect.succeed(undefined)
})

/** A fixed token for one server. */
interface ServerToken {
  /** Scheme, host and port, such as `https://github.com`. The token is sent to no other server. */
  readonly server: string
  readonly username: string
  readonly token: Redacted.Redacted<string>
}

/** Provides one token per server. Other servers are accessed without a credential. */
export const layerTokens = (tokens: ReadonlyArray<ServerToken>): Layer.Layer<GitCredentials> =>
  Layer.sync(GitCredentials, () => {
    const byServer = new Map(
      tokens.map(({ server, token, username }): [string, GitCredential] => [
        serverOf(server),
        { username, password: token }
      ])
    )
    return GitCredentials.of({ get: ({ url }) => Effect.succeed(byServer.get(serverOf(url))) })
  })
