/**
 * Rules for the commits of an agent, as data.
 *
 * Every field has a default, which is meant to be kept. A repository can have its own values, selected by a glob over
 * `host/owner/name`. The rules apply to every commit relative to each of its parents, and not only to the difference
 * between base and tip, because content that was added and removed again stays in the history.
 */
import { createHash } from "node:crypto"
import { Effect, Schema, Struct } from "effect"
import picomatch from "picomatch"
import type { Violation } from "./GitRelayError.ts"
import { BranchName, isLocal } from "./Refs.ts"

/** Names of the rules, as reported in a `Violation`. */
export const Rule = Schema.Literals([
  "branch",
  "base-ancestor",
  "root-commit",
  "object",
  "commits",
  "paths",
  "trees",
  "tree-bytes",
  "depth",
  "path-bytes",
  "blob-bytes",
  "total-bytes",
  "message-bytes",
  "message",
  "author",
  "mode",
  "dot-git",
  "control-character",
  "protected-path",
  "submodule",
  "lfs-config",
  "symlink",
  "lfs-pointer",
  "secret",
  "known-secret"
])

export type Rule = typeof Rule.Type

const KiB = 1024
const MiB = 1024 * KiB
const GiB = 1024 * MiB

const limit = (maximum: number, description: string) =>
  Schema.Int.check(
    Schema.isBetween({ minimum: 1, maximum }, { expected: `a value from 1 to ${maximum} (${description})` })
  ).annotate({ description })

/** Accepts a glob. Rejects a pattern that cannot match or is negated, because it would protect nothing. */
const glob = (what: string) =>
  Schema.String.check(
    Schema.isPattern(/^(?![!/])[^\0\r\n]{0,499}[^\0\r\n/]$/u, {
      expected: `${what}: a glob of 1 to 500 characters that neither starts with ! or / nor ends with /`
    })
  )

/** Whether something is allowed that a policy refuses by default. */
export const Choice = Schema.Literals(["refuse", "allow"])

/** `Name <email>`, as git writes it. */
export const Identity = Schema.String.check(
  Schema.isPattern(/^[^\0-\x1f<>]{1,200} <[^\0-\x1f<> ]{1,200}>$/u, { expected: "Name <email>" })
)

/** Files that run code with the rights of the repository's owner, or that define who must approve changes. */
const protectedPathsDefault: ReadonlyArray<string> = [
  ".github/workflows/**",
  ".github/actions/**",
  "CODEOWNERS",
  "{.github,.gitlab,.gitea,docs}/CODEOWNERS",
  ".gitlab-ci.{yml,yaml}",
  ".gitlab/ci/**",
  ".forgejo/**",
  ".gitea/workflows/**",
  ".gitea/actions/**",
  ".circleci/**",
  "**/Jenkinsfile",
  "**/Jenkinsfile.*",
  "{,.}azure-pipelines.{yml,yaml}",
  ".azure-pipelines/**",
  ".travis.{yml,yaml}",
  "bitbucket-pipelines.{yml,yaml}",
  ".drone.*",
  ".woodpecker*",
  ".woodpecker/**",
  ".buildkite/**",
  "{,.}appveyor.{yml,yaml}",
  ".cirrus.*",
  ".semaphore/**",
  ".teamcity/**",
  ".tekton/**",
  ".build.{yml,yaml}",
  ".builds/**",
  "buildspec.{yml,yaml}",
  "cloudbuild.{yml,yaml,json}",
  "netlify.toml",
  "vercel.json",
  "{,.}now.json",
  ".gitlab/agents/**",
  ".bitbucket/CODEOWNERS",
  ".github/dependabot.{yml,yaml}",
  ".github/settings.{yml,yaml}",
  ".asf.yaml",
  "{,.}renovate.{json,json5}",
  ".renovaterc{,.json,.json5}",
  "{.github,.gitlab}/renovate.{json,json5}",
  ".zuul.{yml,yaml}",
  ".zuul.d/**",
  "zuul.{yml,yaml}",
  "zuul.d/**",
  ".harness/**",
  ".azuredevops/**",
  ".pipelines/**",
  ".vsts-ci.{yml,yaml}",
  "amplify.{yml,yaml}",
  "bitrise.{yml,yaml}",
  "codemagic.{yml,yaml}",
  "bamboo-specs/**",
  ".devcontainer/**",
  ".devcontainer.json",
  ".prow.{yml,yaml}",
  ".prow/**",
  "screwdriver.{yml,yaml}",
  ".pre-commit-config.{yml,yaml}"
]

/** A second safeguard: runs can push only below `sandbox/` in any case. */
const protectedBranchesDefault: ReadonlyArray<string> = [
  "main",
  "master",
  "trunk",
  "develop",
  "production",
  "release/**"
]

const withDefault = <S extends Schema.Top>(schema: S, value: S["Encoded"]) =>
  schema.pipe(Schema.withDecodingDefaultKey(Effect.succeed(value)))

/** A choice that is `refuse` by default. */
const refusedChoice = (description: string) => withDefault(Choice.annotate({ description }), "refuse")

export const Policy = Schema.Struct({
  commitsMax: withDefault(limit(10_000, "commits that the base does not have"), 500),
  pathsMax: withDefault(limit(100_000, "distinct changed paths, over all commits"), 3000),
  treesMax: withDefault(limit(1_000_000, "compared directories, over all commits"), 40_000),
  treeBytesMax: withDefault(limit(64 * MiB, "bytes of one directory listing"), 16 * MiB),
  treesBytesMax: withDefault(limit(16 * GiB, "bytes of all directory listings that are read"), GiB),
  depthMax: withDefault(limit(512, "components of a changed path"), 64),
  blobBytesMax: withDefault(limit(GiB, "bytes of one new file"), 50_000_000),
  totalBytesMax: withDefault(limit(16 * GiB, "bytes of all new files"), 200_000_000),
  messageBytesMax: withDefault(limit(MiB, "bytes of one commit message"), 64 * KiB),
  protectedPaths: withDefault(
    Schema.Array(glob("a path")).annotate({ description: "paths that must not change, in any spelling" }),
    protectedPathsDefault
  ),
  protectedBranches: withDefault(
    Schema.Array(glob("a branch")).annotate({ description: "branches that must not be pushed to" }),
    protectedBranchesDefault
  ),
  submodules: refusedChoice("a changed submodule, or a changed .gitmodules"),
  lfsPointers: refusedChoice("a Git LFS pointer that the base does not have"),
  symlinks: refusedChoice("a symbolic link that leaves the repository"),
  secrets: refusedChoice("text that looks like a credential; the run's own secrets are always refused"),
  authors: withDefault(
    Schema.Union([Schema.Literal("any"), Schema.NonEmptyArray(Identity)]).annotate({
      description: "allowed authors and committers of a commit"
    }),
    "any"
  )
})

export type Policy = typeof Policy.Type

/** Overrides for a repository. A list replaces the whole default list. */
export const PolicyChanges = Policy.mapFields(Struct.map(Schema.toType)).mapFields(
  Struct.map(Schema.optionalKey)
)

export type PolicyChanges = typeof PolicyChanges.Type

export const Policies = Schema.Struct({
  default: withDefault(Policy, {}),
  /**
   * Overrides by a glob over `host/owner/name`, or over the absolute path of a repository of this host. Globs ignore
   * case. All matching overrides apply, in the order written.
   */
  repositories: withDefault(
    Schema.Record(
      Schema.String.check(
        Schema.isPattern(/^(?!!)[^\0\r\n]{1,500}$/u, { expected: "a glob over host/owner/name" })
      ),
      PolicyChanges
    ),
    {}
  )
})

export type Policies = typeof Policies.Type

/** Policies as a caller writes them: only the values that differ from the defaults. */
export type PoliciesInput = typeof Policies.Encoded

/** Rejects unknown fields, because ignoring a misspelled rule would allow what it forbids. */
const strict = { errors: "all", onExcessProperty: "error" } as const

export const decode = Schema.decodeUnknownEffect(Policies, strict)

/** The policy with all defaults. */
export const defaultPolicy: Policy = Schema.decodeUnknownSync(Policy)({})

/** The default policy for every repository. */
export const defaults: Policies = { default: defaultPolicy, repositories: {} }

const globOptions = { dot: true, nocase: true, windows: false } as const

const decodeSync = Schema.decodeUnknownSync(Policies, strict)

/** Returns the policy for one origin. Throws if `decode` fails, so validate external input with `decode` first. */
export const policyFor = (policies: PoliciesInput | undefined, url: string): Policy => {
  const { default: otherwise, repositories } = decodeSync(policies ?? {})
  const name = nameOf(url)
  const matching = Object.entries(repositories).filter(([pattern]) => picomatch(pattern, globOptions)(name))
  return Object.assign({}, otherwise, ...matching.map(([, changes]) => changes))
}

const nameOf = (url: string): string => {
  if (isLocal(url)) return url
  const { host, pathname } = new URL(url)
  return `${host}${pathname.replace(/\/+$/u, "").replace(/\.git$/iu, "")}`
}

/** Returns the SHA-256 of a policy in hexadecimal. It does not depend on the order of fields. */
export const digest = (policy: Policy): string => createHash("sha256").update(canonical(policy)).digest("hex")

const canonical = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const fields = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `{${fields.map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).join(",")}}`
}

/**
 * Returns why a run may not push to a branch, or `undefined` if it may. A branch is refused if it is not below
 * `sandbox/`, if the run starts from it, or if it is protected.
 */
export const branchAllowed = (policy: Policy, branch: string, base: string): Violation | undefined => {
  if (!isBranchName(branch))
    return {
      rule: "branch",
      detail:
        "a run's branch must be below sandbox/, with only letters, digits, dots, underscores and hyphens",
      remedy: "Choose such a name, or omit it to use sandbox/<run id>."
    }
  if (branch.toLowerCase() === base.toLowerCase())
    return {
      rule: "branch",
      detail: "the run starts from this branch",
      remedy: "Choose another name, or omit it to use sandbox/<run id>."
    }
  const pattern = policy.protectedBranches.find((one) => picomatch(one, globOptions)(branch))
  return pattern === undefined
    ? undefined
    : {
        rule: "branch",
        detail: `it is protected by ${JSON.stringify(pattern)}`,
        remedy: "Choose another name, or have the owner remove it from `protectedBranches` of the policy."
      }
}

const isBranchName = Schema.is(BranchName)
