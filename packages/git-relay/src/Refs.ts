/**
 * Names that the relay accepts: commits, branches and origins. The host decides all of them before a run. None is ever
 * read from a workspace.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Schema } from "effect"

export const CommitId = Schema.String.check(
  Schema.isPattern(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/u, { expected: "a full commit ID, SHA-1 or SHA-256" })
).pipe(Schema.brand("@cogni/sandbox-git-relay/CommitId"))

export type CommitId = typeof CommitId.Type

/**
 * A branch that a run may have: below `sandbox/`, with a small alphabet. `git check-ref-format` is not enough, because
 * it accepts `$(id)` and `a;b`.
 */
export const BranchName = Schema.String.check(
  Schema.isPattern(/^sandbox\/(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9][A-Za-z0-9._-]{0,62}[A-Za-z0-9_-]$/u, {
    expected: "sandbox/ and 2 to 64 letters, digits, dots, underscores and hyphens"
  })
).pipe(Schema.brand("@cogni/sandbox-git-relay/BranchName"))

export type BranchName = typeof BranchName.Type

/** A branch of the origin that a run starts from and never writes to. */
export const BaseBranch = Schema.String.check(
  Schema.isPattern(
    /^(?!.*(?:\.\.|\/\/|\.lock(?:\/|$)|\/\.|\.\/))[A-Za-z0-9][A-Za-z0-9._/-]{0,199}(?<![./])$/u,
    {
      expected: "a plain branch name, such as main or release/1.2"
    }
  )
)

/** Hash algorithm of a repository's object IDs. */
export const ObjectFormat = Schema.Literals(["sha1", "sha256"])

export type ObjectFormat = typeof ObjectFormat.Type

const remotePattern =
  /^(?:https:\/\/[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|http:\/\/(?:127\.0\.0\.1|localhost|\[::1\]))(?::\d{1,5})?(?:\/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+\/?$/u

const localPattern = /^\/[^\0\r\n]{0,4000}$/u

/**
 * Location of a run's repository: an https URL without a credential (the relay provides credentials), or the absolute
 * path of a repository of this host. Plain http is accepted for this host only.
 */
export const OriginUrl = Schema.String.check(
  Schema.makeFilter((text: string) =>
    remotePattern.test(text) || localPattern.test(text)
      ? undefined
      : "Expected an https URL without a credential, a query or a fragment, or the absolute path of a repository"
  )
)

/** Returns the default branch of a run. */
export const branchOf = (runId: RunId): BranchName => BranchName.make(`sandbox/${runId}`)

/** Whether an origin is the path of a repository of this host. */
export const isLocal = (url: string): boolean => url.startsWith("/")

/** Returns scheme, host and port of a URL, to which a credential is bound. */
export const serverOf = (url: string): string => new URL(url).origin

/** Returns `owner/name` of a URL, without `.git`. */
export const repositoryOf = (url: string): string =>
  new URL(url).pathname.replace(/^\/+|\/+$/gu, "").replace(/\.git$/u, "")
