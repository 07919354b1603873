/**
 * What may leave: the rules for an agent's commits, as data.
 *
 * Every field has a default that is meant to be kept. A repository may have its own values, by a glob over
 * `host/owner/name`. The rules themselves are held against every commit and each of its parents, never against the
 * difference of the two ends alone: what was added and taken away again is in the history all the same.
 */
import { createHash } from "node:crypto"
import { Effect, Schema, Struct } from "effect"
import picomatch from "picomatch"
import type { Violation } from "./GitRelayError.ts"
import { BranchName, isLocal } from "./Refs.ts"

/** What a `Violation` names as its rule. */
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

/** A pattern that could not match, or that would match all but what it names, protects nothing. */
const glob = (what: string) =>
  Schema.String.check(
    Schema.isPattern(/^(?![!/])[^\0\r\n]{0,499}[^\0\r\n/]$/u, {
      expected: `${what}: a glob of 1 to 500 characters that neither starts with ! or / nor ends with /`
    })
  )

/** Whether what is otherwise refused passes. */
export const Choice = Schema.Literals(["refuse", "allow"])

/** `Name <email>`, as git writes it. */
export const Identity = Schema.String.check(
  Schema.isPattern(/^[^\0-\x1f<>]{1,200} <[^\0-\x1f<> ]{1,200}>$/u, { expected: "Name <email>" })
)

/** What runs code with the rights of the repository's owner, or says who has to approve. */
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

/** Runs have `sandbox/` alone; this says it a second time. */
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

/** Refused, unless the policy says otherwise. */
const refusedChoice = (description: string) => withDefault(Choice.annotate({ description }), "refuse")

export const Policy = Schema.Struct({
  commitsMax: withDefault(limit(10_000, "commits that the base does not have"), 500),
  pathsMax: withDefault(limit(100_000, "different paths that are changed, over all commits"), 3000),
  treesMax: withDefault(limit(1_000_000, "directories that are compared, over all commits"), 40_000),
  treeBytesMax: withDefault(limit(64 * MiB, "of one directory's listing"), 16 * MiB),
  treesBytesMax: withDefault(limit(16 * GiB, "of all listings that are read"), GiB),
  depthMax: withDefault(limit(512, "components of a changed path"), 64),
  blobBytesMax: withDefault(limit(GiB, "of one new file"), 50_000_000),
  totalBytesMax: withDefault(limit(16 * GiB, "of all new files"), 200_000_000),
  messageBytesMax: withDefault(limit(MiB, "of one commit's message"), 64 * KiB),
  protectedPaths: withDefault(
    Schema.Array(glob("a path")).annotate({ description: "never changed, in any spelling" }),
    protectedPathsDefault
  ),
  protectedBranches: withDefault(
    Schema.Array(glob("a branch")).annotate({ description: "never pushed to" }),
    protectedBranchesDefault
  ),
  submodules: refusedChoice("a changed submodule, or a changed .gitmodules"),
  lfsPointers: refusedChoice("a Git LFS pointer that the base does not have"),
  symlinks: refusedChoice("a symbolic link that leaves the repository"),
  secrets: refusedChoice("what looks like a credential; the run's own never pass"),
  authors: withDefault(
    Schema.Union([Schema.Literal("any"), Schema.NonEmptyArray(Identity)]).annotate({
      description: "whose names a commit's author and committer may be"
    }),
    "any"
  )
})

export type Policy = typeof Policy.Type

/** What a repository has otherwise. A list takes the place of the whole list. */
export const PolicyChanges = Policy.mapFields(Struct.map(Schema.toType)).mapFields(
  Struct.map(Schema.optionalKey)
)

export type PolicyChanges = typeof PolicyChanges.Type

export const Policies = Schema.Struct({
  default: withDefault(Policy, {}),
  /**
   * By a glob over `host/owner/name`, or over the absolute path of a repository of this host, in either case of
   * letters. All that match apply, in the order written.
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

/** What a caller writes: only what is otherwise than by default. */
export type PoliciesInput = typeof Policies.Encoded

/** A field that does not exist is an error: what was meant to forbid something must not be passed over. */
const strict = { errors: "all", onExcessProperty: "error" } as const

export const decode = Schema.decodeUnknownEffect(Policies, strict)

/** Everything as documented. */
export const defaultPolicy: Policy = Schema.decodeUnknownSync(Policy)({})

/** The same for every repository. */
export const defaults: Policies = { default: defaultPolicy, repositories: {} }

const globOptions = { dot: true, nocase: true, windows: false } as const

const decodeSync = Schema.decodeUnknownSync(Policies, strict)

/** What holds for one origin. Throws where `decode` fails: ask that first of what came from outside. */
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

/** SHA-256 in hexadecimal, the same for the same rules whatever the order of their fields. */
export const digest = (policy: Policy): string => createHash("sha256").update(canonical(policy)).digest("hex")

const canonical = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const fields = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `{${fields.map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).join(",")}}`
}

/**
 * Why a run may not push to a branch: it is not below `sandbox/`, it is what the run started from, or it is protected.
 * `undefined` is leave to do it.
 */
export const branchAllowed = (policy: Policy, branch: string, base: string): Violation | undefined => {
  if (!isBranchName(branch))
    return {
      rule: "branch",
      detail: "a run has a branch below sandbox/, of letters, digits, dots, underscores and hyphens",
      remedy: "Name one, or name none and get sandbox/<run id>."
    }
  if (branch.toLowerCase() === base.toLowerCase())
    return {
      rule: "branch",
      detail: "it is the branch that the run starts from",
      remedy: "Name another one, or name none and get sandbox/<run id>."
    }
  const pattern = policy.protectedBranches.find((one) => picomatch(one, globOptions)(branch))
  return pattern === undefined
    ? undefined
    : {
        rule: "branch",
        detail: `it is protected by ${JSON.stringify(pattern)}`,
        remedy: "Name another one, or have the owner take it out of `protectedBranches` of the policy."
      }
}

const isBranchName = Schema.is(BranchName)
