/**
 * How a container is asked to take an agent's commits out of its workspace. Pure: what comes back is in `Collecting`.
 *
 * It has the workspace, for reading, and nothing else: no network, no credential, no socket. Whatever the agent has
 * left in the repository's configuration may run in there, as the agent's own user, and finds nothing that the agent
 * did not have. The `-c` keep it quiet; the container is the boundary. The mount's source is the directory that the
 * host made, never a path below it: the engine would follow a link there, on the host.
 */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import type { User } from "@cogni/sandbox-core/Posture"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import { repositoryTarget } from "./GitRelay.ts"
import type { CommitId, ObjectFormat } from "./Refs.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export interface ExportRequest {
  readonly runId: RunId
  /** With git in it. Never one that an agent could change. */
  readonly image: string
  /** Who the agent was. */
  readonly user: User
  readonly workspacePath: string
  readonly runtimeSecondsMax: number
}

// -----------------------------------------------------------------------------
// constants
// -----------------------------------------------------------------------------

const MiB = 1024 * 1024

/** What git gets. @category constants */
export const limits = {
  memoryBytesMax: 1024 * MiB,
  processesMax: 64,
  cpusMax: 2,
  temporaryBytesMax: 64 * MiB,
  filesOpenMax: 1024
} as const

/** @category constants */
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

/** Where patches lie in the container that applies them. @category constants */
export const patchesTarget = "/patches"

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
  // A bundle lives for a second on one machine: thirty megabytes of it take 0.1 s so, and 2.2 s as git packs by itself.
  "-c",
  "pack.compression=0",
  "-c",
  "core.bigFileThreshold=256k"
]

// -----------------------------------------------------------------------------
// converting
// -----------------------------------------------------------------------------

/** A container that writes the bundle of one reference to stdout. @category converting */
export const bundleSpec = (
  request: ExportRequest,
  what: { readonly ref: string; readonly baseCommit: CommitId; readonly objectFormat: ObjectFormat }
): ContainerSpec => ({
  ...common(request),
  env: { ...environment, GIT_OPTIONAL_LOCKS: "0" },
  mounts: [{ type: "directory", source: request.workspacePath, target: Workspace.target, readOnly: true }],
  argv: [
    "git",
    `--git-dir=${repositoryTarget}/.git`,
    // Attributes of the working tree would be read otherwise, and a pipe among them would be waited for.
    "--work-tree=/var/empty",
    ...quiet,
    "bundle",
    "create",
    "--quiet",
    `--version=${what.objectFormat === "sha1" ? 2 : 3}`,
    "-",
    what.ref,
    `^${what.baseCommit}`
  ]
})

/**
 * A container that commits what the agent did not get to. It may write to the workspace, as the agent did.
 *
 * @category converting
 */
export const leftoversSpec = (request: ExportRequest, message: string): ContainerSpec => ({
  ...common(request),
  env: environment,
  mounts: [{ type: "directory", source: request.workspacePath, target: Workspace.target, readOnly: false }],
  argv: ["/usr/local/bin/cogni-repo", "--commit", message]
})

/** A container that puts patches onto what is checked out. @category converting */
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

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const common = ({ image, runId, runtimeSecondsMax, user }: ExportRequest) =>
  ({
    runId,
    role: "relay",
    image,
    user,
    network: { mode: "none" },
    limits: { ...limits, workspaceBytesMax: 256 * MiB, runtimeSecondsMax }
  }) as const
