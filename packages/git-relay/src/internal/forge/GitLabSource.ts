/**
 * Source of connections of the kind `gitlab`: an access token of a project, a group or a user, encrypted in the
 * database.
 *
 * GitLab is asked about the token before each use: whether it is active, when it expires, and whether its scopes allow
 * the use. GitLab has no tokens for one use, so use tokens of projects, with the fewest scopes.
 *
 * @see {@link https://docs.gitlab.com/api/personal_access_tokens/}
 */
import type { Purpose } from "@cogni/sandbox-connections/Connection"
import {
  CredentialMismatch,
  SourceRefused,
  SourceUnavailable
} from "@cogni/sandbox-connections/ConnectionReason"
import type { CredentialSource } from "@cogni/sandbox-connections/CredentialSource"
import { Effect, Schema } from "effect"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as ForgeApi from "./ForgeApi.ts"

/** Scopes of GitLab, of which a token needs one for a use. */
const scopes = {
  fetch: ["read_repository", "write_repository", "api"],
  push: ["write_repository", "api"],
  pull_request: ["api"],
  tool_read: ["read_api", "api"],
  tool_write: ["api"]
} as const satisfies Readonly<Record<Purpose, ReadonlyArray<string>>>

const AccessToken = Schema.Struct({
  active: Schema.Boolean,
  scopes: Schema.Array(Schema.String),
  /** A day; the token expires at its beginning, in UTC. */
  expires_at: Schema.NullOr(Schema.String.check(Schema.isPattern(/^\d{4}-\d\d-\d\d$/u)))
})

export const make: CredentialSource = {
  kind: "gitlab",
  states: [],
  issue: ({ connection: { name, server, username }, permit: { purpose }, secret }) =>
    Effect.gen(function* () {
      const token = yield* secret
      const request = HttpClientRequest.get(`${server}/api/v4/personal_access_tokens/self`)
      const found = yield* ForgeApi.ask({ username, password: token }, request, AccessToken).pipe(
        ForgeApi.inTime,
        Effect.mapError(failedFor(name))
      )
      if (!found.active) {
        return yield* new SourceRefused({
          connection: name,
          detail: "GitLab says that its token is not active",
          remedy: "Create a token, remove the connection and add it again"
        })
      }
      const needed: ReadonlyArray<string> = scopes[purpose]
      if (!found.scopes.some((scope) => needed.includes(scope))) {
        return yield* new CredentialMismatch({ connection: name, claim: "rights" })
      }
      return {
        secret: token,
        expiresAt: found.expires_at === null ? undefined : new Date(`${found.expires_at}T00:00:00Z`),
        claims: {}
      }
    })
}

const failedFor =
  (connection: string) =>
  ({ detail, isRetryable, remedy, status }: ForgeApi.Refusal): SourceRefused | SourceUnavailable => {
    const what = { connection, detail: `GitLab did not confirm its token: ${detail}` }
    return isRetryable
      ? new SourceUnavailable({ ...what, remedy })
      : new SourceRefused({
          ...what,
          remedy: status === 401 ? "Remove the connection and add it again with a valid token" : remedy
        })
  }
