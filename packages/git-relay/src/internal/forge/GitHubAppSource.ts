/**
 * Source of connections of the kind `github_app`: each account has its own installation of this host's GitHub App.
 *
 * Each use gets a new token for one repository, with the rights of that use. GitHub says which repositories and rights
 * a token has: an installation of another owner with a repository of the same name is noticed that way. When the use is
 * over, the token is made invalid. It is never stored.
 */
import type { Purpose } from "@cogni/sandbox-connections/Connection"
import {
  CredentialMismatch,
  SourceRefused,
  SourceUnavailable
} from "@cogni/sandbox-connections/ConnectionReason"
import type { CredentialSource } from "@cogni/sandbox-connections/CredentialSource"
import { Effect, type Redacted } from "effect"
import * as ForgeApi from "./ForgeApi.ts"
import * as GitHubAppToken from "./GitHubAppToken.ts"
import { serverOf } from "../../Refs.ts"
import * as GitHubPermissions from "./GitHubPermissions.ts"

export interface GitHubAppSourceOptions {
  readonly appId: number
  /** PEM-encoded. */
  readonly privateKey: Redacted.Redacted<string>
  /** The server of the App. Defaults to `https://github.com`. */
  readonly server?: string | undefined
  readonly apiUrl?: string | undefined
}

/** Rights of each use. They never include changing workflows. */
const permissions = {
  ...GitHubPermissions.permissions,
  tool_read: { issues: "read", pull_requests: "read" },
  tool_write: { issues: "write", pull_requests: "write" }
} as const satisfies Readonly<Record<Purpose, GitHubAppToken.Rights>>

export const make = (options: GitHubAppSourceOptions): CredentialSource => {
  const server = serverOf(options.server ?? "https://github.com")
  return {
    kind: "github_app",
    states: ["repository"],
    ignoresCase: true,
    issue: ({ connection: { means, name, server: asked }, permit: { purpose, repository } }) =>
      Effect.gen(function* () {
        if (means.kind !== "github_app" || asked !== server || repository === undefined) {
          return yield* new SourceRefused({
            connection: name,
            detail: `the GitHub App of this host issues tokens only for repositories of ${server}`,
            remedy: "Name a repository of that server, or use another connection"
          })
        }
        const rights = permissions[purpose]
        const { installationId } = means
        const minted = yield* Effect.mapError(
          ForgeApi.inTime(GitHubAppToken.mint(options, { url: repository, rights, installationId })),
          failedFor(name)
        )
        const { expiresAt, repositories, token } = minted
        const revoke = Effect.mapError(
          GitHubAppToken.revoke(options, { token, url: repository }),
          failedFor(name)
        )
        if (!GitHubAppToken.hasRights(minted, rights)) {
          yield* Effect.ignore(revoke)
          return yield* new CredentialMismatch({ connection: name, claim: "rights" })
        }
        return { secret: token, expiresAt, claims: { repository: repositories }, revoke }
      })
  }
}

const failedFor =
  (connection: string) =>
  (refusal: ForgeApi.Refusal): SourceRefused | SourceUnavailable => {
    const { detail, isRetryable, remedy } = GitHubAppToken.told(refusal)
    return isRetryable
      ? new SourceUnavailable({ connection, detail, remedy })
      : new SourceRefused({ connection, detail, remedy })
  }
