/**
 * `Workspace` over directories of the host, mounted into the sandbox.
 *
 * A fresh workspace ends with its run. One of the user's stays, and nothing is ever written into it, nor is a path in
 * it followed: the one exception is the empty directory `.cogni`, made without following links, onto which the inputs
 * are mounted, and which stays.
 */
import type { Mount } from "@cogni/sandbox-core/ContainerRuntime"
import type { User } from "@cogni/sandbox-core/Posture"
import type { Input } from "@cogni/sandbox-core/SandboxSpec"
import {
  type AcquiredWorkspace,
  inputsTarget,
  target,
  Workspace,
  type WorkspaceRequest
} from "@cogni/sandbox-core/Workspace"
import { Effect, Layer } from "effect"
import { constants, type Stats } from "node:fs"
import { access, chmod, chown, lstat, mkdir, mkdtemp, realpath, writeFile } from "node:fs/promises"
import { homedir, tmpdir } from "node:os"
import { basename, dirname, join, resolve } from "node:path"
import * as HostTree from "./HostTree.ts"
import * as WorkspaceMeasure from "./internal/WorkspaceMeasure.ts"
import { attempt, Refused } from "./internal/WorkspaceRefusal.ts"

/** Who an agent is when the host process is root and the workspace does not say. @category constants */
export const defaultUser: User = { userId: 1000, groupId: 1000 }

/** A workspace with more files than this cannot be watched, and ends its run. @category constants */
export const measuredEntriesMax = WorkspaceMeasure.entriesMax

/** Directories whose mount would hand over the host. A workspace may neither be nor hold one. */
const forbidden = [
  "/proc",
  "/sys",
  "/dev",
  "/run/docker.sock",
  "/run",
  "/var/run",
  "/var/lib/docker",
  "/etc/passwd",
  "/usr/bin"
]

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = (options?: {
  /** Further paths that no workspace may be or hold, such as the directory of the records. */
  readonly forbidden?: ReadonlyArray<string> | undefined
  /** Workspaces that the host has made itself, although they lie where none may: each its whole path. */
  readonly allowed?: ReadonlyArray<string> | ((path: string) => boolean) | undefined
}) => {
  const neverHeld = [...forbidden, ...(options?.forbidden ?? [])]
  const { allowed = [] } = options ?? {}
  const isAllowed = typeof allowed === "function" ? allowed : (path: string) => allowed.includes(path)

  const fresh = Effect.fnUntraced(function* (base: string, memory: boolean) {
    const user = ownUser() ?? defaultUser
    const path = join(base, "workspace")
    yield* Effect.acquireRelease(
      attempt(path, async () => {
        await mkdir(path, { mode: 0o700 })
        if (!memory) await mkdir(join(path, ".cogni"), { mode: 0o755 })
        if (ownUser() === undefined) await chown(path, user.userId, user.groupId)
      }),
      () => removeTree(path)
    )
    return { path, user }
  })

  const given = Effect.fnUntraced(function* (asked: string, memory: boolean) {
    const { path, user } = yield* attempt(asked, () => examine(asked, isAllowed(asked) ? [] : neverHeld))
    if (memory) return { path, user }
    const control = join(path, ".cogni")
    // It stays: removing it would take it from under another run of the same workspace, inputs and all.
    yield* attempt(asked, () => controlDirectory(control, asked))
    return { path, user }
  })

  const acquire = Effect.fn("Workspace.acquire")(function* (request: WorkspaceRequest) {
    const base = request.directory ?? (yield* temporaryDirectory)
    const inputs = yield* writeFiles(join(base, "inputs"), request.inputs)
    const planted = yield* Effect.forEach(request.planted, ({ files, name, target }) =>
      Effect.map(writeFiles(join(base, name), files), (source): Mount => ({
        type: "directory",
        source,
        target,
        readOnly: true
      }))
    )
    const { memory, source } = request
    const { path, user } = yield* source.type === "temporary"
      ? fresh(base, memory)
      : given(source.path, memory)
    const mounts: Array<Mount> = [
      { type: "directory", source: path, target, readOnly: false },
      { type: "directory", source: inputs, target: inputsTarget, readOnly: true },
      ...(memory
        ? []
        : [{ type: "directory", source: inputs, target: `${target}/.cogni`, readOnly: true } as const]),
      ...planted
    ]
    const counted = yield* WorkspaceMeasure.make(path, request)
    return { mounts, user, ...counted } satisfies AcquiredWorkspace
  })
  return Workspace.of({ acquire })
}

/** @category layers */
export const layer = (options?: Parameters<typeof make>[0]): Layer.Layer<Workspace> =>
  Layer.sync(Workspace, () => make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Root makes containers for others; anyone else is who the container runs as. */
const ownUser = (): User | undefined => {
  const userId = process.getuid?.() ?? 0
  return userId === 0 ? undefined : { userId, groupId: process.getgid?.() ?? userId }
}

const removeTree = (path: string) => Effect.promise(() => HostTree.remove(path))

const temporaryDirectory = Effect.acquireRelease(
  attempt(tmpdir(), () => mkdtemp(join(tmpdir(), "cogni-run-"))),
  removeTree
)

/** Files that the agent reads and cannot change; whatever the umask of the host process is. */
const writeFiles = (path: string, files: ReadonlyArray<Input>) =>
  Effect.acquireRelease(
    attempt(path, async () => {
      await mkdir(path, { mode: 0o755 })
      await Promise.all(
        files.map(({ content, name }) => writeFile(join(path, name), content, { flag: "wx", mode: 0o644 }))
      )
      await chmod(path, 0o755)
      await Promise.all(files.map(({ name }) => chmod(join(path, name), 0o644)))
      return path
    }),
    () => removeTree(path)
  )

const stat = async (path: string): Promise<Stats> => {
  try {
    return await lstat(path)
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException
    if (code === "ENOENT") throw new Refused("does not exist", "Make it first, or name another directory")
    if (code === "ENOTDIR")
      throw new Refused("lies below something that is not a directory", "Check the path")
    if (code === "EACCES")
      throw new Refused("cannot be reached by this user", "Check the permissions of the directories above it")
    throw thrown
  }
}

const examine = async (asked: string, neverHeld: ReadonlyArray<string>) => {
  const absolute = resolve(asked)
  const found = await stat(absolute)
  if (found.isSymbolicLink()) {
    throw new Refused(
      `is a symbolic link to ${await realpath(absolute).catch(() => "nowhere")}`,
      "Name the directory itself, so that it cannot be exchanged"
    )
  }
  if (!found.isDirectory())
    throw new Refused("is not a directory", "Name a directory; single files can be inputs")
  const path = join(await realpath(dirname(absolute)), basename(absolute))
  const held = neverHeld.find(
    (other) => path === "/" || other === path || other.startsWith(`${path}/`) || path.startsWith(`${other}/`)
  )
  if (held !== undefined)
    throw new Refused(
      `would hand ${held} to the agent`,
      "Name a directory of a project, not one of the system"
    )
  return { path, user: await userFor(path, found) }
}

/** The agent must be able to work in it, and must not be root: it becomes the owner, or the permissions must allow it. */
const userFor = async (path: string, found: Stats): Promise<User> => {
  const own = ownUser()
  if (own !== undefined) {
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK).catch(() => {
      throw new Refused(
        `cannot be read and written by uid ${own.userId}, as which the agent runs`,
        remedyOf(path, own)
      )
    })
    return own
  }
  if (found.uid !== 0) return { userId: found.uid, groupId: found.gid === 0 ? found.uid : found.gid }
  const bits = found.gid === defaultUser.groupId ? found.mode >> 3 : found.mode
  if ((bits & 0o7) === 0o7) return defaultUser
  throw new Refused(
    `belongs to root and cannot be read and written by uid ${defaultUser.userId}, as which the agent runs`,
    remedyOf(path, defaultUser)
  )
}

/** Of a home, or of all of them, nobody is told to change the owner: who does can log in no more. */
const remedyOf = (path: string, { groupId, userId }: User): string =>
  path === homedir() || dirname(path) === "/"
    ? "Name a directory of a project in it, one that belongs to that user"
    : `Give it to that user: chown -R ${userId}:${groupId} ${path}`

/** A real directory for the mount of the inputs. `mkdir` never follows a link at the end of its path. */
const controlDirectory = async (control: string, workspace: string): Promise<void> => {
  try {
    await mkdir(control, { mode: 0o755 })
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== "EEXIST") throw thrown
    if ((await lstat(control)).isDirectory()) return
    throw new Refused(
      "holds a .cogni that is not a directory, where the inputs must be mounted",
      `Look at ${join(workspace, ".cogni")} and remove it`
    )
  }
}
