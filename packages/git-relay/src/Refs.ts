/**
 * Commits, branches and origins: what the relay accepts as a name. All of it is decided by the host before a run, and
 * nothing of it is ever read from a workspace.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Schema } from "effect"

export const CommitId = Schema.String.check(
  Schema.isPattern(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/u, { expected: "a whole commit id, SHA-1 or SHA-256" })
).pipe(Schema.brand("@cogni/sandbox-git-relay/CommitId"))

export type CommitId = typeof CommitId.Type

/**
 * A branch that runs may have: below `sandbox/`, of a small alphabet. `git check-ref-format` is not enough: it accepts
 * `$(id)` and `a;b`.
 */
export const BranchName = Schema.String.check(
  Schema.isPattern(/^sandbox\/(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9][A-Za-z0-9._-]{0,62}[A-Za-z0-9_-]$/u, {
    expected: "sandbox/ and 2 to 64 letters, digits, dots, underscores and hyphens"
  })
).pipe(Schema.brand("@cogni/sandbox-git-relay/BranchName"))

export type BranchName = typeof BranchName.Type

/** A branch of the origin that a run starts from, and never writes to. */
export const BaseBranch = Schema.String.check(
  Schema.isPattern(
    /^(?!.*(?:\.\.|\/\/|\.lock(?:\/|$)|\/\.|\.\/))[A-Za-z0-9][A-Za-z0-9._/-]{0,199}(?<![./])$/u,
    {
      expected: "a plain branch name, such as main or release/1.2"
    }
  )
)

/** How a repository names its objects. */
export const ObjectFormat = Schema.Literals(["sha1", "sha256"])

export type ObjectFormat = typeof ObjectFormat.Type

const remotePattern =
  /^(?:https:\/\/[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|http:\/\/(?:127\.0\.0\.1|localhost|\[::1\]))(?::\d{1,5})?(?:\/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+\/?$/u

const localPattern = /^\/[^\0\r\n]{0,4000}$/u

/**
 * Where a run's repository lies: an https URL without a credential (those belong to the relay), or the absolute path of
 * a repository on this host. Plain http passes to this host only.
 */
export const OriginUrl = Schema.String.check(
  Schema.makeFilter((text: string) =>
    remotePattern.test(text) || localPattern.test(text)
      ? undefined
      : "Expected an https URL without a credential, a query or a fragment, or the absolute path of a repository"
  )
)

/** The branch of a run that names none. */
export const branchOf = (runId: RunId): BranchName => BranchName.make(`sandbox/${runId}`)

/** An origin on this host. */
export const isLocal = (url: string): boolean => url.startsWith("/")

/** Scheme, host and port: what a credential is bound to. */
export const serverOf = (url: string): string => new URL(url).origin

/** `owner/name`, without `.git`. */
export const repositoryOf = (url: string): string =>
  new URL(url).pathname.replace(/^\/+|\/+$/gu, "").replace(/\.git$/u, "")
