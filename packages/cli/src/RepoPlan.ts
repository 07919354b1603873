/** Converts the flags for a repository to a request to the relay. Pure. */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { BaseBranch, BranchName, isLocal, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import type * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import * as RelaySteps from "@cogni/sandbox-git-relay/RelaySteps"
import { Result, Schema } from "effect"
import { resolve } from "node:path"
import { type Refusal, refuse } from "./Failure.ts"
import type * as Flags from "./Flags.ts"

type RepoFlags = Partial<Flags.Typed<typeof Flags.run>>

export interface RepoPlan {
  readonly request: RelayRun.RelayRunRequest
  readonly patch: string | undefined
}

/** Plans a run on a repository. Returns `undefined` without `--repo`. */
export const make = (flags: RepoFlags, runId: RunId): Result.Result<RepoPlan | undefined, Refusal> =>
  Result.gen(function* () {
    const { depth, noCommit, patch, pr, repo } = flags
    if (repo === undefined) {
      const stray = strayOf(flags)
      return stray === undefined
        ? undefined
        : yield* refuse(
            "usage",
            `${stray} has no effect without --repo`,
            "Name the repository: --repo URL or --repo PATH"
          )
    }
    if (flags.workspace !== undefined) {
      return yield* refuse(
        "usage",
        "--repo excludes --workspace",
        "Leave one of them out: the repository is the workspace"
      )
    }
    const deliver = yield* deliveryOf(flags)
    const url = yield* urlOf(repo)
    const refs = yield* refsOf(flags)
    if (pr === true && isLocal(url)) {
      return yield* refuse(
        "usage",
        "a directory of this host has no pull requests",
        "Leave --pr out, or name its URL"
      )
    }
    const uncommittedMessage =
      noCommit === true ? undefined : (flags.commitMessage ?? RelaySteps.defaultUncommittedMessage)
    const request = {
      runId,
      url,
      ...refs,
      ...(depth === undefined ? {} : { depth }),
      ...(pr === true ? { createPr: true } : {}),
      deliver,
      uncommittedMessage
    }
    return { patch, request }
  })

/** Parses the name of a branch below `sandbox/`, with or without that prefix. */
export const branchOf = (text: string): Result.Result<BranchName, Refusal> => {
  const name = text.startsWith("sandbox/") ? text : `sandbox/${text}`
  return Schema.is(BranchName)(name)
    ? Result.succeed(name)
    : refuse(
        "usage",
        `--branch ${text} is not a branch name that runs may use`,
        "Use letters, digits, dots, underscores and hyphens; the branch is created below sandbox/"
      )
}

/** Finds a flag that has no effect without `--repo`. */
const strayOf = (flags: RepoFlags): string | undefined =>
  (
    [
      ["--base", flags.base],
      ["--branch", flags.branch],
      ["--depth", flags.depth],
      ["--push", flags.push],
      ["--pr", flags.pr],
      ["--patch", flags.patch],
      ["--no-commit", flags.noCommit],
      ["--commit-message", flags.commitMessage]
    ] as const
  ).find(([, typed]) => typed !== undefined && typed !== false)?.[0]

const deliveryOf = ({
  commitMessage,
  noCommit,
  patch,
  pr,
  push
}: RepoFlags): Result.Result<"push" | "patch", Refusal> => {
  if (noCommit === true && commitMessage !== undefined)
    return refuse("usage", "--no-commit excludes --commit-message", "Leave one of them out")
  if (patch === undefined) return Result.succeed("push")
  return push === true || pr === true
    ? refuse("usage", `--patch excludes ${pr === true ? "--pr" : "--push"}`, "Leave one of them out")
    : Result.succeed("patch")
}

const urlOf = (repo: string): Result.Result<string, Refusal> => {
  if (/^[a-z][a-z0-9+.-]*:\/\//iu.test(repo)) {
    if (Schema.is(OriginUrl)(repo)) return Result.succeed(repo)
    return refuse(
      "usage",
      "--repo is not a plain https URL",
      "Write https://HOST/OWNER/NAME, without a user, a query or a fragment (a token goes into GITHUB_TOKEN), " +
        "or name the path of a repository of this host"
    )
  }
  // Such as git@github.com:owner/name, which git would treat as ssh.
  if (/^[^/.][^/]*:/u.test(repo))
    return refuse("usage", "--repo is an ssh address, and the relay has no ssh keys", "Write its https URL")
  return Result.succeed(resolve(repo))
}

const refsOf = (
  flags: RepoFlags
): Result.Result<{ readonly baseBranch?: string; readonly branch?: BranchName }, Refusal> => {
  if (flags.base !== undefined && !Schema.is(BaseBranch)(flags.base))
    return refuse(
      "usage",
      `--base ${flags.base} is not a plain branch name`,
      "Name one such as main or release/1.2"
    )
  const base = flags.base === undefined ? {} : { baseBranch: flags.base }
  return flags.branch === undefined
    ? Result.succeed(base)
    : Result.map(branchOf(flags.branch), (branch) => ({ ...base, branch }))
}
