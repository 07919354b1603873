/**
 * `GitCredentials` of a GitHub App. Each use gets a new token for one repository, with the rights of that use and a
 * lifetime of one hour. Tokens are not stored.
 *
 * The format of a token is not checked: newer tokens have several hundred characters and contain dots.
 *
 * @see {@link https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app}
 */
import { Clock, Effect, Layer, Redacted, Schema } from "effect"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import { sign } from "node:crypto"
import * as CredentialUse from "../internal/git/CredentialUse.ts"
import { type CredentialRequest, type GitCredential, GitCredentials } from "../GitCredentials.ts"
import { CredentialsUnavailable } from "../GitRelayError.ts"
import * as ForgeApi from "../internal/forge/ForgeApi.ts"
import { apiUrlOf, repository } from "../internal/forge/GitHubPullRequests.ts"
import { serverOf } from "../Refs.ts"

export interface GitHubAppOptions {
  readonly appId: number
  /** PEM-encoded. */
  readonly privateKey: Redacted.Redacted<string>
  /** Looked up by repository if omitted. */
  readonly installationId?: number | undefined
  /** The only server whose repositories get tokens. Defaults to `https://github.com`. */
  readonly server?: string | undefined
  readonly apiUrl?: string | undefined
}

/** Rights of each use. They never include changing workflows. */
export const permissions = {
  fetch: { contents: "read" },
  push: { contents: "write" },
  pull_request: { contents: "read", pull_requests: "write" }
} as const satisfies Readonly<Record<CredentialRequest["purpose"], Readonly<Record<string, string>>>>

const Installation = Schema.Struct({ id: Schema.Int })

const AccessToken = Schema.Struct({ token: Schema.RedactedFromValue(Schema.NonEmptyString) })

export const make = (options: GitHubAppOptions): GitCredentials["Service"] => {
  const server = serverOf(options.server ?? "https://github.com")
  const mint = Effect.fnUntraced(function* ({ purpose, url }: CredentialRequest) {
    const { owner, repo } = yield* repository(url)
    const app = yield* signedBy(options)
    const api = apiUrlOf(url, options.apiUrl)
    const lookUp = HttpClientRequest.get(`${api}/repos/${owner}/${repo}/installation`)
    const installationId = options.installationId ?? (yield* ForgeApi.ask(app, lookUp, Installation)).id
    const { token } = yield* ForgeApi.ask(
      app,
      HttpClientRequest.post(`${api}/app/installations/${installationId}/access_tokens`).pipe(
        HttpClientRequest.bodyJsonUnsafe({ repositories: [repo], permissions: permissions[purpose] })
      ),
      AccessToken
    )
    return { username: "x-access-token", password: token }
  })
  return GitCredentials.of({
    get: Effect.fn("GitHubAppCredentials.get")(function* (request: CredentialRequest) {
      if (serverOf(request.url) !== server) return undefined
      return yield* Effect.mapError(ForgeApi.inTime(mint(request)), unavailable)
    })
  })
}

export const layer = (options: GitHubAppOptions): Layer.Layer<GitCredentials> =>
  Layer.sync(GitCredentials, () => make(options))

/** Seconds that the clock of this host may be ahead of GitHub's. */
const clockSecondsMax = 60

/** Seconds until the JSON Web Token expires. GitHub rejects tokens that are valid for more than ten minutes. */
const validSeconds = 540

/** Credential of the App itself: a JSON Web Token, signed with the App's key. */
const signedBy = Effect.fnUntraced(function* ({ appId, privateKey }: GitHubAppOptions) {
  const now = Math.floor((yield* Clock.currentTimeMillis) / 1000)
  const text = [
    { alg: "RS256", typ: "JWT" },
    { iat: now - clockSecondsMax, exp: now + validSeconds, iss: String(appId) }
  ]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".")
  const signature = yield* Effect.try({
    try: () => sign("RSA-SHA256", Buffer.from(text), CredentialUse.privateKey(privateKey)),
    // OpenSSL's message about the key is omitted.
    catch: () => ForgeApi.refused("its private key cannot sign", "Check that the private key is PEM")
  })
  return {
    username: "app",
    password: Redacted.make(`${text}.${signature.toString("base64url")}`)
  } satisfies GitCredential
})

const rights = "Check that the App is installed on the repository, with the rights it needs"

/** Remedies by HTTP status. Without a helpful answer, the key may be wrong as well. */
const remedies: Readonly<Record<number, string>> = {
  401: "Check the App's id and key, and the clock of this host",
  403: rights,
  404: rights,
  410: rights,
  422: rights
}

const unavailable = ({ detail, isRetryable, remedy, status = 0 }: ForgeApi.Refusal) =>
  new CredentialsUnavailable({
    detail: `GitHub did not issue a token for the App: ${detail}`,
    remedy: isRetryable ? remedy : (remedies[status] ?? `${remedy}, and the App's id and key`),
    isRetryable
  })
