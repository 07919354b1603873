/**
 * `GitCredentials` of a GitHub App: a token for each use, for one repository, with the rights of that use and an hour
 * to live. None is kept.
 *
 * Nothing is assumed of a token's form: newer ones are several hundred characters with dots in them.
 *
 * @see {@link https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app}
 */
import { Effect, Layer, Redacted } from "effect"
import * as CredentialUse from "../internal/git/CredentialUse.ts"
import { type CredentialRequest, GitCredentials } from "../GitCredentials.ts"
import { CredentialsUnavailable } from "../GitRelayError.ts"
import { apiUrlOf } from "../internal/forge/GitHubPullRequests.ts"
import * as ForgeAnswers from "../internal/forge/ForgeAnswers.ts"
import * as GitHubClient from "../internal/forge/GitHubClient.ts"
import { repositoryOf, serverOf } from "../Refs.ts"

export interface GitHubAppOptions {
  readonly appId: number
  /** In PEM. */
  readonly privateKey: Redacted.Redacted<string>
  /** Looked up by the repository when it is left out. */
  readonly installationId?: number | undefined
  /** The one server whose repositories get tokens. Left out: `https://github.com`. */
  readonly server?: string | undefined
  readonly apiUrl?: string | undefined
}

/** What each use needs; never the right to change workflows. */
export const permissions = {
  fetch: { contents: "read" },
  push: { contents: "write" },
  pull_request: { contents: "read", pull_requests: "write" }
} as const satisfies Readonly<Record<CredentialRequest["purpose"], Readonly<Record<string, string>>>>

export const make = (options: GitHubAppOptions): GitCredentials["Service"] => {
  const server = serverOf(options.server ?? "https://github.com")
  const mint = ({ purpose, url }: CredentialRequest) =>
    Effect.gen(function* () {
      const [owner = "", repo = "", ...rest] = repositoryOf(url).split("/")
      if (repo === "" || rest.length > 0) {
        return yield* Effect.fail({
          status: undefined,
          detail: "the origin's path is not OWNER/NAME, as GitHub has it",
          remedy: "Check the URL",
          isRetryable: false
        })
      }
      return yield* ForgeAnswers.asked(undefined, async (asking) => {
        const { createAppAuth } = await import("@octokit/auth-app")
        const auth = { appId: options.appId, privateKey: CredentialUse.privateKey(options.privateKey) }
        const client = await GitHubClient.make({
          apiUrl: apiUrlOf(url, options),
          asking,
          auth: { authStrategy: createAppAuth, auth }
        })
        const installationId =
          options.installationId ?? (await client.rest.apps.getRepoInstallation({ owner, repo })).data.id
        const { data } = await client.rest.apps.createInstallationAccessToken({
          installation_id: installationId,
          repositories: [repo],
          permissions: permissions[purpose]
        })
        if (typeof data.token !== "string" || data.token === "") throw new Error("the answer holds no token")
        return data.token
      })
    }).pipe(Effect.mapError(unavailable))
  return GitCredentials.of({
    get: Effect.fn("GitHubAppCredentials.get")(function* (request: CredentialRequest) {
      if (serverOf(request.url) !== server) return undefined
      const token = yield* ForgeAnswers.inTime(mint(request), unavailable)
      return { username: "x-access-token", password: Redacted.make(token) }
    })
  })
}

export const layer = (options: GitHubAppOptions): Layer.Layer<GitCredentials> =>
  Layer.sync(GitCredentials, () => make(options))

const rights = "Check that the App is installed on the repository, with the rights it needs"

/** By what was answered; without an answer that helps, the key is as likely to be wrong as anything else. */
const remedies: Readonly<Record<string, string>> = {
  401: "Check the App's id and key, and the clock of this host",
  403: rights,
  404: rights,
  410: rights,
  422: rights
}

const unavailable = ({ detail, isRetryable, remedy, status }: ForgeAnswers.Refusal) =>
  new CredentialsUnavailable({
    detail: `GitHub gives the App no token: ${detail}`,
    remedy: isRetryable ? remedy : (remedies[String(status)] ?? `${remedy}, and the App's id and key`),
    isRetryable
  })
