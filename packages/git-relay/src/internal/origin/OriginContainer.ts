/**
 * The containers that open a repository of this host: one reads it, one delivers a branch to it. Pure.
 *
 * Such a repository is as hostile as a workspace: an agent that worked in it can have written its configuration and
 * hooks, and git runs what they name. So no git of the host opens it. These containers have only that directory, no
 * network and no credential; `cogni-git` in them reads neither its configuration nor its hooks.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as ContainerGit from "../git/ContainerGit.ts"
import type { BranchName, CommitId } from "../../Refs.ts"

/** Request for a container with a repository of this host. */
export interface OriginRequest extends ContainerGit.ContainerRequest {
  /** The git directory to mount; no other directory of the repository is mounted. */
  readonly source: string
  /**
   * Device and inode of the directory that the host holds, such as `2049:131`. The container stops if it finds another.
   */
  readonly identity: string
  /** Name of the requested linked worktree; empty for the repository itself. */
  readonly worktree: string
}

export interface ReadRequest {
  readonly baseBranch?: string | undefined
  readonly baseCommit?: CommitId | undefined
  readonly depth: number
}

interface DeliverRequest {
  readonly branch: BranchName
  readonly tip: CommitId
  /** The tree of `tip`. A branch with the same files already has the work. */
  readonly tree: string
  /** Commit from which the branch may be moved. If absent, the branch may only be added. */
  readonly expected: CommitId | undefined
  /** Directory of the host that contains the file `bundle`. */
  readonly bundleDirectory: string
  readonly bundleBytesMax: number
  /** `check` makes the same decision without writing: the repository is mounted read-only. */
  readonly how: "write" | "check"
}

/** Path of the repository in these containers. */
export const originTarget = "/origin"

/** Path of the bundle's directory in the container that delivers it. */
const deliveryTarget = "/delivery"

/** Reference in a bundle from a repository of this host. */
export const baseRef = "refs/relay/base"

/** A container that writes the references, and then a bundle of the base. */
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

/** A container that adds one branch, or checks whether it may be added. */
export const deliverSpec = (request: OriginRequest, what: DeliverRequest): ContainerSpec => {
  const base = ContainerGit.common(request)
  return {
    ...base,
    mounts: [
      mount(request, what.how === "check"),
      { type: "directory", source: what.bundleDirectory, target: deliveryTarget, readOnly: true }
    ],
    // The largest file that it may write: the bundle's objects and the bases of their deltas.
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
