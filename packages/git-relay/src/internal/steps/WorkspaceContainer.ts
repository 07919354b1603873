/**
 * The containers that open a workspace: one exports commits, one commits uncommitted changes, and one applies patches.
 * Pure: `BundleImport` reads their output.
 *
 * The source of the mount is the directory that the host created, never a path below it, because the engine would
 * follow a link there, on the host.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { repositoryTarget } from "../../RelaySteps.ts"
import type { CommitId, ObjectFormat } from "../../Refs.ts"
import * as ContainerGit from "../git/ContainerGit.ts"

/** Request for a container with a workspace. */
export interface WorkspaceRequest extends ContainerGit.ContainerRequest {
  readonly workspacePath: string
}

/** Path of the patches in the container that applies them. */
const patchesTarget = "/patches"

const quiet = [
  "core.fsmonitor=false",
  "core.hooksPath=/dev/null",
  "core.commitGraph=false",
  "core.pager=cat",
  "pack.threads=1",
  "core.bigFileThreshold=256k"
].flatMap((value) => ["-c", value])

/** A container that writes the bundle of one reference to stdout. */
export const bundleSpec = (
  request: WorkspaceRequest,
  what: { readonly ref: string; readonly baseCommit: CommitId; readonly objectFormat: ObjectFormat }
): ContainerSpec => ({
  ...ContainerGit.common(request),
  env: { ...ContainerGit.environment, GIT_OPTIONAL_LOCKS: "0" },
  mounts: [{ type: "directory", source: request.workspacePath, target: SandboxPlace.target, readOnly: true }],
  argv: [
    ContainerGit.program,
    "export",
    `${repositoryTarget}/.git`,
    what.objectFormat === "sha1" ? "2" : "3",
    what.ref,
    `^${what.baseCommit}`
  ]
})

/** A container that commits what the agent left uncommitted. It can write to the workspace, as the agent could. */
export const commitSpec = (request: WorkspaceRequest, message: string): ContainerSpec => ({
  ...ContainerGit.common(request),
  mounts: [
    { type: "directory", source: request.workspacePath, target: SandboxPlace.target, readOnly: false }
  ],
  argv: [
    ContainerGit.program,
    "check",
    repositoryTarget,
    "--",
    "/usr/local/bin/cogni-repo",
    "--commit",
    message
  ]
})

/** A container that applies patches to the checked-out branch. */
export const applySpec = (
  request: WorkspaceRequest,
  patches: { readonly path: string; readonly names: ReadonlyArray<string> }
): ContainerSpec => ({
  ...ContainerGit.common(request),
  mounts: [
    { type: "directory", source: request.workspacePath, target: SandboxPlace.target, readOnly: false },
    { type: "directory", source: patches.path, target: patchesTarget, readOnly: true }
  ],
  argv: [
    "git",
    "-C",
    repositoryTarget,
    ...quiet,
    "am",
    "--quiet",
    "--keep-non-patch",
    // The same patches give the same commits, whenever they are applied.
    "--committer-date-is-author-date",
    "--no-gpg-sign",
    "--",
    ...patches.names.map((name) => `${patchesTarget}/${name}`)
  ]
})
