/**
 * Directories of sandboxes that wait for a run: a workspace, inputs and a place for a socket, all of them empty.
 *
 *     <directory>/<random>/owner        the process that made them, outside of what is mounted
 *                          workspace  inputs  llm-sock
 *
 * Their names say nothing about their maker, because a sandbox can read the paths of its mounts.
 */
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import type { User } from "@cogni/sandbox-core/Posture"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import { HostFailed } from "@cogni/sandbox-core/SandboxReason"
import { socketPath } from "@cogni/sandbox-core/SandboxPlace"
import type { PreparedDirectories } from "@cogni/sandbox-core/WaitingSandbox"
import { inputsTarget, target } from "@cogni/sandbox-core/SandboxPlace"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect, type Scope } from "effect"
import { chmod, chown, mkdir, readdir } from "node:fs/promises"
import { dirname, join } from "node:path"
import * as HostOwner from "../../HostOwner.ts"
import * as WaitingRemains from "../../WaitingRemains.ts"
import { attemptOwn } from "./WorkspaceRefusal.ts"

export interface Options {
  /** Directory for all of them, shared by the processes of a user. */
  readonly directory: string
  readonly user: User
  /** Whether this process is root, and gives the workspace to the user. */
  readonly isRoot: boolean
}

/** Makes directories for one sandbox, and first removes those of dead processes. */
export const acquire: (
  options: Options,
  memory: boolean
) => Effect.Effect<PreparedDirectories, HostFailed, Scope.Scope> = Effect.fnUntraced(
  function* (options, memory) {
    const { directory, user } = options
    // Before anything in it is removed: it could be a link, or another user's.
    yield* attemptOwn(directory, () => OwnFiles.makePrivateDirectory(directory))
    yield* WaitingRemains.reap(directory)
    const base = join(directory, crypto.randomUUID())
    yield* Effect.acquireRelease(
      // Otherwise each attempt on a full disk would leave one, until this process ends.
      Effect.tapError(
        attemptOwn(base, () => make(base, options, memory)),
        () => Effect.ignore(HostTree.remove(base))
      ),
      () => Effect.orDie(HostTree.remove(base))
    )
    const mounts = yield* attemptOwn(base, () =>
      Promise.all([
        mounted(join(base, "workspace"), target, false),
        mounted(join(base, "inputs"), inputsTarget, true),
        ...(memory ? [] : [mounted(join(base, "inputs"), `${target}/.cogni`, true)]),
        mounted(join(base, "llm-sock"), dirname(socketPath), true)
      ])
    )
    return { mounts, user, memory, clean: clean(join(base, "workspace"), memory) }
  }
)

const make = async (base: string, { isRoot, user }: Options, memory: boolean): Promise<void> => {
  await mkdir(base, { mode: 0o700 })
  await OwnFiles.create(join(base, "owner"), formatOwner(HostOwner.self()))
  const workspace = join(base, "workspace")
  await mkdir(workspace, { mode: 0o700 })
  if (!memory) await mkdir(join(workspace, ".cogni"), { mode: 0o755 })
  if (isRoot) await chown(workspace, user.userId, user.groupId)
  for (const name of ["inputs", "llm-sock"]) {
    await mkdir(join(base, name), { mode: 0o755 })
    // Whatever the umask of this process.
    await chmod(join(base, name), 0o755)
  }
}

/** Removes everything from a workspace but the place of its inputs. No process may work in it any more. */
const clean = (workspace: string, memory: boolean): Effect.Effect<void, HostFailed> =>
  attemptOwn(workspace, async () => {
    const names = await readdir(workspace)
    return names.filter((name) => memory || name !== ".cogni").map((name) => join(workspace, name))
  }).pipe(
    Effect.flatMap(Effect.forEach((path) => HostTree.remove(path), { discard: true })),
    Effect.catchTag("HostPathRefused", ({ detail, path, remedy }) =>
      Effect.fail(new HostFailed({ path, problem: "unusable", detail, remedy }))
    )
  )

const mounted = async (source: string, at: string, readOnly: boolean): Promise<Mount> => ({
  type: "directory",
  source,
  target: at,
  readOnly,
  held: await MountIdentity.ofPrivate(source)
})
