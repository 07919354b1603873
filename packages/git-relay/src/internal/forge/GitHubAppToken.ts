/**
 * Tokens of installations of a GitHub App: for one repository, with the rights of one use, valid for an hour.
 *
 * The format of a token is not checked: newer tokens have several hundred characters and contain dots.
 *
 * @see {@link https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app}
 */
import { Clock, Effect, Redacted, Schema } from "effect"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import { sign } from "node:crypto"
import type { GitCredential } from "../../GitCredentials.ts"
import { serverOf } from "../../Refs.ts"
import * as CredentialUse from "../git/CredentialUse.ts"
import * as ForgeApi from "./ForgeApi.ts"
import { apiUrlOf, repository } from "./GitHubPullRequests.ts"

/** A GitHub App of this host. */
export interface GitHubApp {
  readonly appId: number
  /** PEM-encoded. */
  readonly privateKey: Redacted.Redacted<string>
  readonly apiUrl?: string | undefined
}

/** Rights by name, such as `contents`. */
export type Rights = Readonly<Record<string, string>>

interface TokenRequest {
  /** URL of the repository. */
  readonly url: string
  readonly rights: Rights
  /** Looked up by repository if omitted. */
  readonly installationId?: number | undefined
}

/** A token, as GitHub describes it. */
interface AppToken {
  readonly token: Redacted.Redacted<string>
  readonly expiresAt: Date
  /** URLs of the repositories that it opens, if GitHub names them. */
  readonly repositories: ReadonlyArray<string> | undefined
  readonly rights: Rights
}

const Installation = Schema.Struct({ id: Schema.Int })

const AccessToken = Schema.Struct({
  token: Schema.RedactedFromValue(Schema.NonEmptyString),
  expires_at: Schema.DateFromString,
  permissions: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
  repositories: Schema.optionalKey(Schema.Array(Schema.Struct({ full_name: Schema.String })))
})

/** Requests a token. */
export const mint = Effect.fnUntraced(function* (
  app: GitHubApp,
  { installationId, rights, url }: TokenRequest
): Effect.fn.Return<AppToken, ForgeApi.Refusal> {
  const { owner, repo } = yield* repository(url)
  const credential = yield* signedBy(app)
  const api = apiUrlOf(url, app.apiUrl)
  const lookUp = HttpClientRequest.get(`${api}/repos/${owner}/${repo}/installation`)
  const id = installationId ?? (yield* ForgeApi.ask(credential, lookUp, Installation)).id
  const { expires_at, permissions, repositories, token } = yield* ForgeApi.ask(
    credential,
    HttpClientRequest.post(`${api}/app/installations/${id}/access_tokens`).pipe(
      HttpClientRequest.bodyJsonUnsafe({ repositories: [repo], permissions: rights })
    ),
    AccessToken
  )
  return {
    token,
    expiresAt: expires_at,
    repositories: repositories?.map(({ full_name: name }) => `${serverOf(url)}/${name}`),
    rights: permissions ?? {}
  }
})

/** Makes a token invalid. */
export const revoke = (
  { apiUrl }: GitHubApp,
  { token, url }: { readonly token: Redacted.Redacted<string>; readonly url: string }
): Effect.Effect<void, ForgeApi.Refusal> =>
  ForgeApi.tell(
    { username: "x-access-token", password: token },
    HttpClientRequest.delete(`${apiUrlOf(url, apiUrl)}/installation/token`),
    () => Effect.void
  )

/** Whether a token has exactly the rights that were asked for. GitHub adds reading of metadata to all of them. */
export const hasRights = ({ rights }: Pick<AppToken, "rights">, asked: Rights): boolean => {
  const { metadata = "read", ...others } = rights
  const names = new Set([...Object.keys(others), ...Object.keys(asked)])
  return metadata === "read" && [...names].every((name) => others[name] === asked[name])
}

/** Seconds that the clock of this host may be ahead of GitHub's. */
const clockSecondsMax = 60

/** Seconds until the JSON Web Token expires. GitHub rejects tokens that are valid for more than ten minutes. */
const validSeconds = 540

/** Credential of the App itself: a JSON Web Token, signed with the App's key. */
const signedBy = Effect.fnUntraced(function* ({ appId, privateKey }: GitHubApp) {
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

const rightsOnRepository = "Check that the App is installed on the repository, with the rights it needs"

/** Remedies by HTTP status. Without a helpful answer, the key may be wrong as well. */
const remedies: Readonly<Record<number, string>> = {
  401: "Check the App's id and key, and the clock of this host",
  403: rightsOnRepository,
  404: rightsOnRepository,
  410: rightsOnRepository,
  422: rightsOnRepository
}

/** Describes why GitHub issued no token. */
export const told = ({ detail, isRetryable, remedy, status = 0 }: ForgeApi.Refusal) => ({
  detail: `GitHub did not issue a token for the App: ${detail}`,
  remedy: isRetryable ? remedy : (remedies[status] ?? `${remedy}, and the App's id and key`),
  isRetryable
})
