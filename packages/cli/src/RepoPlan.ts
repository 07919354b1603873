/** From what was typed about a repository to what the relay is asked for. Pure. */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { BaseBranch, BranchName, isLocal, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import { Result, Schema } from "effect"
import { resolve } from "node:path"
import { type Refusal, refuse } from "./Failure.ts"
import type * as Flags from "./Flags.ts"

/** What was typed. */
type RepoFlags = Partial<Flags.Typed<typeof Flags.run>>

export interface RepoPlan {
  readonly request: RelayRun.RelayRunRequest
  readonly patch: string | undefined
}

/** `undefined`: no repository was asked for. */
export const make = (flags: RepoFlags, runId: RunId): Result.Result<RepoPlan | undefined, Refusal> =>
  Result.gen(function* () {
    const { depth, noCommit, patch, pr, repo } = flags
    if (repo === undefined) {
      const stray = strayOf(flags)
      return stray === undefined
        ? undefined
        : yield* refuse(
            "usage",
            `${stray} says nothing without --repo`,
            "Name the repository: --repo URL or --repo PATH"
          )
    }
    if (flags.workspace !== undefined) {
      return yield* refuse(
        "usage",
        "--repo and --workspace are both there",
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
    const commitLeftovers = noCommit === true ? undefined : (flags.commitMessage ?? RelayRun.leftoversMessage)
    const request = {
      runId,
      url,
      ...refs,
      ...(depth === undefined ? {} : { depth }),
      ...(pr === true ? { createPr: true } : {}),
      deliver,
      commitLeftovers
    }
    return { patch, request }
  })

/** A branch of the sandbox's namespace, with or without its beginning. */
export const branchOf = (text: string): Result.Result<BranchName, Refusal> => {
  const name = text.startsWith("sandbox/") ? text : `sandbox/${text}`
  return Schema.is(BranchName)(name)
    ? Result.succeed(name)
    : refuse(
        "usage",
        `--branch ${text} is no branch that a run may have`,
        "Use letters, digits, dots, underscores and hyphens; it comes to lie below sandbox/"
      )
}

/** What was typed that only a repository gives a meaning. */
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
      "--repo is no https URL of a plain kind",
      "Write https://HOST/OWNER/NAME, without a user, a query or a fragment (a token goes into GITHUB_TOKEN), " +
        "or name the path of a repository of this host"
    )
  }
  // As in git@github.com:owner/name, which git would take for ssh.
  if (/^[^/.][^/]*:/u.test(repo))
    return refuse("usage", "--repo speaks ssh, whose keys the relay does not hold", "Write its https URL")
  return Result.succeed(resolve(repo))
}

const refsOf = (
  flags: RepoFlags
): Result.Result<{ readonly baseBranch?: string; readonly branch?: BranchName }, Refusal> => {
  if (flags.base !== undefined && !Schema.is(BaseBranch)(flags.base))
    return refuse(
      "usage",
      `--base ${flags.base} is no plain branch name`,
      "Name one such as main or release/1.2"
    )
  const base = flags.base === undefined ? {} : { baseBranch: flags.base }
  return flags.branch === undefined
    ? Result.succeed(base)
    : Result.map(branchOf(flags.branch), (branch) => ({ ...base, branch }))
}
