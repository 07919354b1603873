/**
 * How a container is asked to take an agent's commits out of its workspace. Pure: what comes back is read in `BundleImport`.
 *
 * It has the workspace, for reading, and nothing else: no network, no credential, no socket. `cogni-git` reads neither
 * the repository's configuration nor its hooks; if something of the agent's ran in there all the same, it would run as
 * the agent's own user and find nothing that the agent did not have. The container is the boundary. The mount's source
 * is the directory that the host made, never a path below it: the engine would follow a link there, on the host.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import type { User } from "@cogni/sandbox-core/Posture"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import { repositoryTarget } from "../../GitRelay.ts"
import type { CommitId, ObjectFormat } from "../../Refs.ts"

export interface ExportRequest {
  readonly runId: RunId
  /** With git in it. Never one that an agent could change. */
  readonly image: string
  /** Who the agent was. */
  readonly user: User
  readonly workspacePath: string
  readonly runtimeSecondsMax: number
}

const MiB = 1024 * 1024

/** What git gets. */
export const limits = {
  memoryBytesMax: 1024 * MiB,
  processesMax: 64,
  cpusMax: 2,
  temporaryBytesMax: 64 * MiB,
  filesOpenMax: 1024
} as const

export const environment: Readonly<Record<string, string>> = {
  GIT_ATTR_NOSYSTEM: "1",
  GIT_CONFIG_COUNT: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_KEY_0: "safe.directory",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_VALUE_0: "*",
  GIT_NO_LAZY_FETCH: "1",
  GIT_NO_REPLACE_OBJECTS: "1",
  GIT_TERMINAL_PROMPT: "0",
  HOME: "/nonexistent",
  LC_ALL: "C",
  PATH: "/usr/local/bin:/usr/bin:/bin"
}

/** Where patches lie in the container that applies them. */
export const patchesTarget = "/patches"

/** Program in the runtime image that opens repositories that may be hostile. */
export const program = "/usr/local/bin/cogni-git"

const quiet = [
  "-c",
  "core.fsmonitor=false",
  "-c",
  "core.hooksPath=/dev/null",
  "-c",
  "core.commitGraph=false",
  "-c",
  "core.pager=cat",
  "-c",
  "pack.threads=1",
  "-c",
  "core.bigFileThreshold=256k"
]

/** A container that writes the bundle of one reference to stdout. */
export const bundleSpec = (
  request: ExportRequest,
  what: { readonly ref: string; readonly baseCommit: CommitId; readonly objectFormat: ObjectFormat }
): ContainerSpec => ({
  ...common(request),
  env: { ...environment, GIT_OPTIONAL_LOCKS: "0" },
  mounts: [{ type: "directory", source: request.workspacePath, target: Workspace.target, readOnly: true }],
  argv: [
    program,
    "export",
    `${repositoryTarget}/.git`,
    what.objectFormat === "sha1" ? "2" : "3",
    what.ref,
    `^${what.baseCommit}`
  ]
})

/** A container that commits what the agent did not get to. It may write to the workspace, as the agent did. */
export const leftoversSpec = (request: ExportRequest, message: string): ContainerSpec => ({
  ...common(request),
  env: environment,
  mounts: [{ type: "directory", source: request.workspacePath, target: Workspace.target, readOnly: false }],
  argv: [program, "check", repositoryTarget, "--", "/usr/local/bin/cogni-repo", "--commit", message]
})

/** A container that puts patches onto what is checked out. */
export const applySpec = (
  request: ExportRequest,
  patches: { readonly path: string; readonly names: ReadonlyArray<string> }
): ContainerSpec => ({
  ...common(request),
  env: environment,
  mounts: [
    { type: "directory", source: request.workspacePath, target: Workspace.target, readOnly: false },
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
    // The same patches are the same commits, whenever they are applied.
    "--committer-date-is-author-date",
    "--no-gpg-sign",
    "--",
    ...patches.names.map((name) => `${patchesTarget}/${name}`)
  ]
})

/** What all containers of a relay have in common: no network, and these limits. */
export const common = ({
  image,
  runId,
  runtimeSecondsMax,
  user
}: Omit<ExportRequest, "workspacePath">): Omit<ContainerSpec, "env" | "mounts" | "argv"> =>
  ({
    runId,
    role: "relay",
    image,
    user,
    network: { mode: "none" },
    limits: { ...limits, workspaceBytesMax: 256 * MiB, runtimeSecondsMax }
  }) as const
