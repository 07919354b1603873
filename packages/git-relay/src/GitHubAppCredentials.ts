/**
 * `GitCredentials` of a GitHub App: a token for each use, for one repository, with the rights of that use and an hour
 * to live. None is kept.
 *
 * Nothing is assumed of a token's form: newer ones are several hundred characters with dots in them.
 *
 * @see {@link https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app}
 */
import { Duration, Effect, Layer, Redacted } from "effect"
import * as CredentialUse from "./CredentialUse.ts"
import { type CredentialRequest, GitCredentials } from "./GitCredentials.ts"
import { CredentialsUnavailable } from "./GitRelayError.ts"
import { apiUrlOf } from "./GitHubPullRequests.ts"
import * as ForgeAnswers from "./internal/ForgeAnswers.ts"
import { oneLine } from "./internal/Text.ts"
import { repositoryOf, serverOf } from "./Refs.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
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

/** What each use needs; never the right to change workflows. @category constants */
export const permissions = {
  fetch: { contents: "read" },
  push: { contents: "write" },
  pull_request: { contents: "read", pull_requests: "write" }
} as const satisfies Readonly<Record<CredentialRequest["purpose"], Readonly<Record<string, string>>>>

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = (options: GitHubAppOptions): GitCredentials["Service"] => {
  const server = serverOf(options.server ?? "https://github.com")
  const mint = async ({ purpose, url }: CredentialRequest): Promise<string> => {
    const [{ createAppAuth }, { Octokit }] = await Promise.all([
      import("@octokit/auth-app"),
      import("@octokit/rest")
    ])
    const silent = () => undefined
    const client = new Octokit({
      authStrategy: createAppAuth,
      auth: { appId: options.appId, privateKey: CredentialUse.privateKey(options.privateKey) },
      baseUrl: apiUrlOf(url, options),
      userAgent: "cogni-sandbox",
      log: { debug: silent, info: silent, warn: silent, error: silent },
      request: { fetch: ForgeAnswers.boundedFetch }
    })
    const [owner = "", repo = ""] = repositoryOf(url).split("/")
    const installationId =
      options.installationId ?? (await client.rest.apps.getRepoInstallation({ owner, repo })).data.id
    const { data } = await client.rest.apps.createInstallationAccessToken({
      installation_id: installationId,
      repositories: [repo],
      permissions: permissions[purpose]
    })
    if (typeof data.token !== "string" || data.token === "") throw new Error("the answer holds no token")
    return data.token
  }
  return GitCredentials.of({
    get: Effect.fn("GitHubAppCredentials.get")(function* (request: CredentialRequest) {
      if (serverOf(request.url) !== server) return undefined
      const token = yield* Effect.tryPromise({ try: () => mint(request), catch: unavailable }).pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(ForgeAnswers.operationSecondsMax),
          orElse: () => Effect.fail(unavailable(new Error("GitHub did not answer in time")))
        })
      )
      return { username: "x-access-token", password: Redacted.make(token) }
    })
  })
}

/** @category layers */
export const layer = (options: GitHubAppOptions): Layer.Layer<GitCredentials> =>
  Layer.sync(GitCredentials, () => make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** What is thrown names requests and statuses; the key and the tokens are in none of it. */
const unavailable = (thrown: unknown) =>
  new CredentialsUnavailable({
    detail: `GitHub gives the App no token: ${oneLine(thrown instanceof Error ? thrown.message : String(thrown))}`,
    remedy: "Check the App's id and key, and that it is installed on the repository with the rights it needs",
    isRetryable: false
  })
