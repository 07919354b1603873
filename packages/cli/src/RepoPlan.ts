/** From what was typed about a repository to what the relay is asked for. Pure. */
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { Clone, CloneRequest } from "@cogni/sandbox-git-relay/GitRelay"
import { BaseBranch, BranchName, isLocal, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import { Result, Schema } from "effect"
import { resolve } from "node:path"
import { Refusal } from "./Failure.ts"
import type { RunPlan } from "./RunPlan.ts"

/** What was typed. */
export interface RepoFlags {
  readonly repo?: string | undefined
  readonly base?: string | undefined
  readonly branch?: string | undefined
  readonly depth?: number | undefined
  readonly push: boolean
  readonly pr: boolean
  /** Absolute. */
  readonly patch?: string | undefined
  readonly noCommit: boolean
  readonly commitMessage?: string | undefined
}

/** Nothing typed. */
export const noRepoFlags: RepoFlags = { push: false, pr: false, noCommit: false }

export interface RepoPlan {
  readonly request: RelayRun.RelayRunRequest
  readonly patch: string | undefined
}

/** `undefined`: no repository was asked for. */
export const make = (
  flags: RepoFlags & { readonly workspace?: string | undefined },
  runId: RunId
): Result.Result<RepoPlan | undefined, Refusal> => {
  const { repo } = flags
  if (repo === undefined) {
    const stray = strayOf(flags)
    return stray === undefined
      ? Result.succeed(undefined)
      : refuse(`${stray} says nothing without --repo`, "Name the repository: --repo URL or --repo PATH")
  }
  if (flags.workspace !== undefined)
    return refuse(
      "--repo and --workspace are both there",
      "Leave one of them out: the repository is the workspace"
    )
  return Result.flatMap(deliveryOf(flags), (deliver) =>
    Result.flatMap(urlOf(repo), (url) =>
      Result.flatMap(refsOf(flags), (refs) => {
        if (flags.pr && isLocal(url))
          return refuse("a directory of this host has no pull requests", "Leave --pr out, or name its URL")
        const request: CloneRequest = {
          runId,
          url,
          ...refs,
          ...(flags.depth === undefined ? {} : { depth: flags.depth }),
          ...(flags.pr ? { createPr: true } : {})
        }
        return Result.succeed({
          patch: flags.patch,
          request: {
            ...request,
            deliver,
            commitLeftovers: flags.noCommit ? undefined : (flags.commitMessage ?? RelayRun.leftoversMessage)
          }
        })
      })
    )
  )
}

/** A branch of the sandbox's namespace, with or without its beginning. */
export const branchOf = (text: string): Result.Result<BranchName, Refusal> => {
  const name = text.startsWith("sandbox/") ? text : `sandbox/${text}`
  return Schema.is(BranchName)(name)
    ? Result.succeed(name)
    : refuse(
        `--branch ${text} is no branch that a run may have`,
        "Use letters, digits, dots, underscores and hyphens; it comes to lie below sandbox/"
      )
}

/** The run that works in the clone instead of a workspace of its own. */
export const within = (plan: RunPlan, { request }: RepoPlan, clone: Clone): RunPlan => {
  const [program = "", ...rest] = plan.spec.argv
  return {
    ...plan,
    spec: {
      ...plan.spec,
      runId: request.runId,
      workspace: { type: "directory", path: clone.workspacePath },
      argv: RelayRun.inRepository([program, ...rest], request.commitLeftovers)
    }
  }
}

const refuse = (detail: string, remedy: string) => Result.fail(new Refusal({ exit: "usage", detail, remedy }))

const strayOf = (flags: RepoFlags): string | undefined =>
  [
    ["--base", flags.base !== undefined],
    ["--branch", flags.branch !== undefined],
    ["--depth", flags.depth !== undefined],
    ["--push", flags.push],
    ["--pr", flags.pr],
    ["--patch", flags.patch !== undefined],
    ["--no-commit", flags.noCommit],
    ["--commit-message", flags.commitMessage !== undefined]
  ].find(([, typed]) => typed === true)?.[0] as string | undefined

const deliveryOf = ({
  commitMessage,
  noCommit,
  patch,
  pr,
  push
}: RepoFlags): Result.Result<"push" | "patch", Refusal> => {
  if (noCommit && commitMessage !== undefined)
    return refuse("--no-commit excludes --commit-message", "Leave one of them out")
  if (patch === undefined) return Result.succeed("push")
  return push || pr
    ? refuse(`--patch excludes ${pr ? "--pr" : "--push"}`, "Leave one of them out")
    : Result.succeed("patch")
}

const urlOf = (repo: string): Result.Result<string, Refusal> => {
  if (/^[a-z][a-z0-9+.-]*:\/\//iu.test(repo)) {
    if (Schema.is(OriginUrl)(repo)) return Result.succeed(repo)
    return refuse(
      "--repo is no https URL of a plain kind",
      "Write https://HOST/OWNER/NAME, without a user, a query or a fragment (a token goes into GITHUB_TOKEN), " +
        "or name the path of a repository of this host"
    )
  }
  // As in git@github.com:owner/name, which git would take for ssh.
  if (/^[^/.][^/]*:/u.test(repo))
    return refuse("--repo speaks ssh, whose keys the relay does not hold", "Write its https URL")
  return Result.succeed(resolve(repo))
}

const refsOf = (
  flags: RepoFlags
): Result.Result<{ readonly baseBranch?: string; readonly branch?: BranchName }, Refusal> => {
  if (flags.base !== undefined && !Schema.is(BaseBranch)(flags.base))
    return refuse(`--base ${flags.base} is no plain branch name`, "Name one such as main or release/1.2")
  const base = flags.base === undefined ? {} : { baseBranch: flags.base }
  return flags.branch === undefined
    ? Result.succeed(base)
    : Result.map(branchOf(flags.branch), (branch) => ({ ...base, branch }))
}
