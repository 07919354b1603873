/** Sources of connections to forges: installations of a GitHub App, and access tokens of GitLab. */
import type { CredentialSource } from "@cogni/sandbox-connections/CredentialSource"
import * as GitHubAppSource from "../internal/forge/GitHubAppSource.ts"
import * as GitLabSource from "../internal/forge/GitLabSource.ts"

/** Returns the sources, for the `sources` of a broker. Without an App, this host issues no tokens of installations. */
export const make = (
  options: { readonly gitHubApp?: GitHubAppSource.GitHubAppSourceOptions | undefined } = {}
): ReadonlyArray<CredentialSource> => [
  GitLabSource.make,
  ...(options.gitHubApp === undefined ? [] : [GitHubAppSource.make(options.gitHubApp)])
]
