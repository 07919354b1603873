/**
 * `GitCredentials` of a GitHub App. Each use gets a new token for one repository, with the rights of that use and a
 * lifetime of one hour. Tokens are not stored.
 */
import { Effect, Layer } from "effect"
import { type CredentialRequest, GitCredentials } from "../GitCredentials.ts"
import { CredentialsUnavailable } from "../GitRelayError.ts"
import * as ForgeApi from "../internal/forge/ForgeApi.ts"
import * as GitHubAppToken from "../internal/forge/GitHubAppToken.ts"
import { serverOf } from "../Refs.ts"
import { permissions } from "../internal/forge/GitHubPermissions.ts"

interface GitHubAppOptions extends GitHubAppToken.GitHubApp {
  /** Looked up by repository if omitted. */
  readonly installationId?: number | undefined
  /** The only server whose repositories get tokens. Defaults to `https://github.com`. */
  readonly server?: string | undefined
}

export const make = (options: GitHubAppOptions): GitCredentials["Service"] => {
  const server = serverOf(options.server ?? "https://github.com")
  const mint = ({ purpose, url }: CredentialRequest) =>
    GitHubAppToken.mint(options, {
      url,
      rights: permissions[purpose],
      installationId: options.installationId
    })
  return GitCredentials.of({
    get: Effect.fn("GitHubAppCredentials.get")(function* (request: CredentialRequest) {
      if (serverOf(request.url) !== server) return undefined
      const { token } = yield* Effect.mapError(
        ForgeApi.inTime(mint(request)),
        (refusal) => new CredentialsUnavailable(GitHubAppToken.told(refusal))
      )
      return { username: "x-access-token", password: token }
    })
  })
}

export const layer = (options: GitHubAppOptions): Layer.Layer<GitCredentials> =>
  Layer.sync(GitCredentials, () => make(options))
