/**
 * The port through which the relay gets the credential of an origin: at the moment it is needed, for one repository,
 * with no more rights than that moment needs.
 *
 * A credential is bound to one server. It goes to git over a pipe, to nothing else, and is forgotten.
 */
import { Context, Effect, Layer, type Redacted } from "effect"
import type { CredentialsUnavailable } from "./GitRelayError.ts"
import { serverOf } from "./Refs.ts"

export interface CredentialRequest {
  /** Of the repository, as in `CloneRequest`; never a local path. */
  readonly url: string
  readonly purpose: "fetch" | "push" | "pull_request"
}

export interface GitCredential {
  /** `x-access-token` at GitHub, `oauth2` at GitLab. */
  readonly username: string
  readonly password: Redacted.Redacted<string>
}

export class GitCredentials extends Context.Service<
  GitCredentials,
  {
    /** `undefined`: the origin is asked without one. */
    readonly get: (
      request: CredentialRequest
    ) => Effect.Effect<GitCredential | undefined, CredentialsUnavailable>
  }
>()("@cogni/sandbox-git-relay/GitCredentials") {}

/** Public repositories, and those on this host. */
export const layerNone: Layer.Layer<GitCredentials> = Layer.succeed(GitCredentials, {
  get: () => Effect.succeed(undefined)
})

/** A token that is there from the beginning. */
export interface ServerToken {
  /** Scheme, host and port, such as `https://github.com`. No other server is ever sent it. */
  readonly server: string
  readonly username: string
  readonly token: Redacted.Redacted<string>
}

/** Each server its own token; what has none is asked without. */
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
