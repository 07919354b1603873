/**
 * The permissions of a GitHub App that each use of a credential needs.
 */
import { type CredentialRequest } from "../../GitCredentials.ts"
import type * as GitHubAppToken from "./GitHubAppToken.ts"

/** Rights of each use. They never include changing workflows. */
export const permissions = {
  fetch: { contents: "read" },
  push: { contents: "write" },
  pull_request: { contents: "read", pull_requests: "write" }
} as const satisfies Readonly<Record<CredentialRequest["purpose"], GitHubAppToken.Rights>>
