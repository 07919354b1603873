/**
 * The containers that open a repository of this host: one that reads it, one that delivers a branch to it. Pure.
 *
 * Such a repository is as hostile as a workspace: an agent that worked in it can have written its configuration and
 * hooks, and git runs what they name. So no git of the host opens it. These containers have that one directory, no
 * network and no credential; `cogni-git` in them reads neither its configuration nor its hooks.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as ContainerGit from "../git/ContainerGit.ts"
import type { BranchName, CommitId } from "../../Refs.ts"

/** A repository of this host, as a container is given it. */
export interface OriginRequest extends ContainerGit.ContainerRequest {
  /** The git directory that is mounted, and no other. */
  readonly source: string
  /** Device and inode of the directory that the host holds, such as `2049:131`. The container stops at any other. */
  readonly identity: string
  /** Name of the linked worktree that was asked for; empty for the repository itself. */
  readonly worktree: string
}

export interface ReadRequest {
  readonly baseBranch?: string | undefined
  readonly baseCommit?: CommitId | undefined
  readonly depth: number
}

export interface DeliverRequest {
  readonly branch: BranchName
  readonly tip: CommitId
  /** The tree of `tip`: a branch with the same files has the work already. */
  readonly tree: string
  /** Where the branch may stand and be moved from; absent: it may only be added. */
  readonly expected: CommitId | undefined
  /** Directory of the host with the file `bundle` in it. */
  readonly bundleDirectory: string
  readonly bundleBytesMax: number
  /** `check` decides the same and writes nothing: what is mounted is read-only. */
  readonly how: "write" | "check"
}

/** Where the repository lies in these containers. */
export const originTarget = "/origin"

/** Where the bundle lies in the container that delivers it. */
export const deliveryTarget = "/delivery"

/** The reference that a bundle from a repository of this host brings. */
export const baseRef = "refs/relay/base"

/** A container that writes what stands where, and then a bundle of the base. */
export const readSpec = (
  request: OriginRequest,
  { baseBranch = "", baseCommit, depth }: ReadRequest
): ContainerSpec => ({
  ...ContainerGit.common(request),
  env: { ...ContainerGit.environment, GIT_OPTIONAL_LOCKS: "0" },
  mounts: [mount(request, true)],
  argv: [
    ContainerGit.program,
    "read",
    request.identity,
    request.worktree,
    baseBranch,
    baseCommit ?? "",
    String(depth)
  ]
})

/** A container that adds one branch, or finds out whether it may be added. */
export const deliverSpec = (request: OriginRequest, what: DeliverRequest): ContainerSpec => {
  const base = ContainerGit.common(request)
  return {
    ...base,
    mounts: [
      mount(request, what.how === "check"),
      { type: "directory", source: what.bundleDirectory, target: deliveryTarget, readOnly: true }
    ],
    // The largest file it may write: the bundle's objects, and what they are deltas of.
    limits: { ...base.limits, workspaceBytesMax: 2 * what.bundleBytesMax + base.limits.workspaceBytesMax },
    argv: [
      ContainerGit.program,
      "deliver",
      request.identity,
      request.worktree,
      what.branch,
      what.tip,
      what.tree,
      what.expected ?? "",
      what.how
    ]
  }
}

const mount = ({ source }: OriginRequest, readOnly: boolean) =>
  ({ type: "directory", source, target: originTarget, readOnly }) as const
