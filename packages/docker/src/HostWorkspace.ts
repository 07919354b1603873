/**
 * `Workspace` over directories of the host, mounted into the sandbox.
 *
 * A temporary workspace is removed with its run. A directory of the user stays. The host never writes into it and never
 * follows a path in it, with one exception: it creates the empty directory `.cogni`, without following links. The
 * inputs are mounted onto it, and it stays.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import type { User } from "@cogni/sandbox-core/Posture"
import type { Input } from "@cogni/sandbox-core/SpecFields"
import { type AcquiredWorkspace, Workspace, type WorkspaceRequest } from "@cogni/sandbox-core/Workspace"
import { inputsTarget, target } from "@cogni/sandbox-core/SandboxPlace"
import {
  type ExaminedDirectory,
  type PreparedDirectories,
  sourceAt
} from "@cogni/sandbox-core/WaitingSandbox"
import { Effect, Layer } from "effect"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { constants } from "node:fs"
import { access, chmod, chown, lstat, mkdir, rmdir } from "node:fs/promises"
import { homedir, tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import * as DiskLooks from "./internal/host/DiskLooks.ts"
import * as WorkspaceMeasure from "./internal/host/WorkspaceMeasure.ts"
import { attempt, attemptOwn, hold, refused } from "./internal/host/WorkspaceRefusal.ts"
import * as MountsBelow from "./internal/host/MountsBelow.ts"
import * as SpecialFiles from "./internal/host/SpecialFiles.ts"
import * as WaitingDirectories from "./internal/host/WaitingDirectories.ts"
import * as WorkspaceClaims from "./internal/host/WorkspaceClaims.ts"
import * as WaitingRemains from "./WaitingRemains.ts"

/** User of the agent if the host process is root and no other user owns the workspace. */
const defaultUser: User = { userId: 1000, groupId: 1000 }

/** A path that a workspace must not equal, contain or be inside of. */
export interface Forbidden {
  readonly path: string
  /** Name for the error message, such as `the key file`. */
  readonly name?: string | undefined
  readonly remedy: string
}

export interface Options {
  /** Forbidden paths in addition to those of the system, such as the directory of the records. */
  readonly forbidden?: ReadonlyArray<Forbidden> | undefined
  /** Absolute paths of workspaces that the host created itself. The forbidden paths do not apply to them. */
  readonly allowed?: ReadonlyArray<string> | ((path: string) => boolean) | undefined
  /** Directory for the claims, shared by all processes of a user. Default: `/tmp/cogni-workspaces-<uid>`. */
  readonly claims?: string | undefined
  /** Directory for those of sandboxes that wait for a run. Default: `/tmp/cogni-waiting-<uid>`. */
  readonly waiting?: string | undefined
}

/** Paths whose mount would give the agent control of the host. */
const forbidden: ReadonlyArray<Forbidden> = [
  "/proc",
  "/sys",
  "/dev",
  "/run/docker.sock",
  "/run",
  "/var/run",
  "/var/lib/docker",
  "/etc/passwd",
  "/usr/bin"
].map((path) => ({ path, remedy: "Use a project directory, not a system directory" }))

const make = (options: Options, disks: DiskLooks.DiskLooks): Workspace["Service"] => {
  const { claims, isAllowed, look } = rulesOf(options)
  /** The workspaces of waiting sandboxes, which are opened and measured before a run waits for it. */
  const waiting = new WeakMap<
    PreparedDirectories,
    { readonly directory: HeldDirectory; readonly bytes: number }
  >()

  const fresh = Effect.fnUntraced(function* (base: string, memory: boolean) {
    const user = ownUser() ?? defaultUser
    const path = join(base, "workspace")
    const names = memory ? [] : [".cogni"]
    const knownBytes = yield* Effect.acquireRelease(
      attemptOwn(path, async () => {
        await mkdir(path, { mode: 0o700 })
        for (const name of names) await mkdir(join(path, name), { mode: 0o755 })
        if (ownUser() === undefined) await chown(path, user.userId, user.groupId)
        return await WorkspaceMeasure.ofKnown(path, names)
      }),
      () =>
        // Empty now, if the agent left nothing: then no program has to be started for it.
        Effect.andThen(
          Effect.promise(() => rmdir(join(path, ".cogni")).catch(() => undefined)),
          removeTree(path)
        )
    )
    return { directory: yield* hold(path), isPrivate: true, user, knownBytes }
  })

  /** The directories that were examined before a run got its sandbox. */
  const examined = new WeakMap<ExaminedDirectory, Effect.Success<ReturnType<typeof look>>>()

  const given = Effect.fnUntraced(function* (request: WorkspaceRequest, asked: string) {
    const { memory, runId } = request
    const known = request.examined === undefined ? undefined : examined.get(request.examined)
    const { directory, user } = known ?? (yield* look(asked))
    yield* claims.hold(runId, directory)
    // It is never removed: another run of the same workspace may have its inputs mounted there.
    // After an interruption, the descriptor of the directory could be that of another one.
    if (!memory) yield* Effect.uninterruptible(attempt(asked, () => controlDirectory(directory)))
    return { directory, isPrivate: isAllowed(asked), user, knownBytes: undefined }
  })

  /** The directories of a waiting sandbox with the inputs of its run, and that run's own directory as its workspace. */
  const inOwn = Effect.fnUntraced(function* (
    request: WorkspaceRequest,
    asked: string,
    prepared: PreparedDirectories
  ) {
    const { directory, isPrivate, user } = yield* given(request, asked)
    yield* attemptOwn(target, () => fill(sourceAt(prepared, inputsTarget) ?? "", request.inputs))
    const own = workspaceMount(directory, isPrivate)
    const mounts = prepared.mounts.map((mount) => (mount.target === target ? own : mount))
    const counted = yield* WorkspaceMeasure.make(directory, request, { disks })
    return {
      mounts,
      user,
      ...counted,
      specialFiles: SpecialFiles.find(directory)
    } satisfies AcquiredWorkspace
  })

  /** The directories of a waiting sandbox, with the inputs of its run. */
  const inPrepared = Effect.fnUntraced(function* (request: WorkspaceRequest, prepared: PreparedDirectories) {
    const { mounts, user } = prepared
    yield* attemptOwn(target, () => fill(sourceAt(prepared, inputsTarget) ?? "", request.inputs))
    const known = waiting.get(prepared)
    const directory = known?.directory ?? (yield* hold(sourceAt(prepared, target) ?? ""))
    const counted = yield* WorkspaceMeasure.make(directory, request, { disks, knownBytes: known?.bytes })
    return { mounts, user, ...counted, specialFiles: noSpecialFiles } satisfies AcquiredWorkspace
  })

  const acquire = Effect.fn("Workspace.acquire")(function* (request: WorkspaceRequest) {
    if (request.prepared !== undefined)
      return yield* request.source.type === "directory"
        ? inOwn(request, request.source.path, request.prepared)
        : inPrepared(request, request.prepared)
    const base = request.directory ?? (yield* temporaryDirectory)
    const inputs = yield* writeFiles(join(base, "inputs"), request.inputs)
    const planted = yield* Effect.forEach(request.planted, ({ files, name, target }) =>
      Effect.map(writeFiles(join(base, name), files), (made): Mount => ({ ...made, target }))
    )
    const { memory, source } = request
    const { directory, isPrivate, knownBytes, user } = yield* source.type === "temporary"
      ? fresh(base, memory)
      : given(request, source.path)
    const mounts: Array<Mount> = [
      workspaceMount(directory, isPrivate),
      { ...inputs, target: inputsTarget },
      ...(memory ? [] : [{ ...inputs, target: `${target}/.cogni` }]),
      ...planted
    ]
    const counted = yield* WorkspaceMeasure.make(directory, request, { disks, knownBytes })
    const specialFiles = source.type === "temporary" ? noSpecialFiles : SpecialFiles.find(directory)
    return { mounts, user, ...counted, specialFiles } satisfies AcquiredWorkspace
  })
  return Workspace.of({
    acquire,
    examine: Effect.fn("Workspace.examine")(function* (path) {
      const found = yield* look(path)
      // The posture check would refuse them, after the waiting sandbox was spent.
      if (MountsBelow.has(found.directory.path)) return undefined
      const usual = ownUser() ?? defaultUser
      const isUsual = found.user.userId === usual.userId && found.user.groupId === usual.groupId
      const answer: ExaminedDirectory = isUsual ? {} : { otherUser: found.user }
      examined.set(answer, found)
      return answer
    }),
    prepare: Effect.fn("Workspace.prepare")(function* ({ memory, user }) {
      const prepared = yield* WaitingDirectories.acquire(
        {
          directory: waitingPlace(options),
          user: ownUser() ?? user ?? defaultUser,
          isRoot: ownUser() === undefined
        },
        memory
      )
      const directory = yield* hold(sourceAt(prepared, target) ?? "")
      waiting.set(prepared, { directory, bytes: yield* WorkspaceMeasure.now(directory) })
      return prepared
    })
  })
}

const workspaceMount = ({ identity, path }: HeldDirectory, isPrivate: boolean): Mount => ({
  type: "directory",
  source: path,
  target,
  readOnly: false,
  held: MountIdentity.make(identity, { isPrivate })
})

/** A temporary workspace contains only files of the host. */
const noSpecialFiles = Effect.succeed({ files: [], isWhole: true })

/** Opens a directory if a run would accept it now: makes the same checks, without a claim. */
export const held = Effect.fn("HostWorkspace.held")(function* (path: string, options: Options = {}) {
  const { claims, look } = rulesOf(options)
  const { directory } = yield* look(path)
  yield* claims.check(directory)
  return directory
})

/** Measures a directory that no run is working in: the bytes on disk of everything in it. */
export const bytesOf = Effect.fn("HostWorkspace.bytesOf")(function* (path: string) {
  return yield* Effect.scoped(Effect.flatMap(hold(path), WorkspaceMeasure.now))
})

/** Building it also removes what the waiting sandboxes of dead host processes left, in the background. */
export const layer = (options?: Options): Layer.Layer<Workspace> =>
  Layer.effect(
    Workspace,
    Effect.gen(function* () {
      yield* Effect.forkScoped(WaitingRemains.reap(waitingPlace(options)))
      return make(options ?? {}, yield* DiskLooks.make)
    })
  )

const waitingPlace = ({ waiting }: Options = {}): string =>
  waiting ?? join(tmpdir(), `cogni-waiting-${process.geteuid?.() ?? 0}`)

const rulesOf = ({ allowed = [], claims: place, forbidden: others = [] }: Options) => {
  const claims = WorkspaceClaims.make({
    directory: place ?? join(tmpdir(), `cogni-workspaces-${process.geteuid?.() ?? 0}`)
  })
  const isAllowed = typeof allowed === "function" ? allowed : (path: string) => allowed.includes(path)
  const neverHeld = [...others, ...forbidden]
  const look = Effect.fnUntraced(function* (asked: string) {
    const directory = yield* hold(resolve(asked), { agents: yield* claims.inUse })
    const user = yield* attempt(asked, () => examine(directory, isAllowed(asked) ? [] : neverHeld))
    return { directory, user }
  })
  return { claims, isAllowed, look }
}

/** Returns the user of this process, as which its containers run, or `undefined` for root. */
const ownUser = (): User | undefined => {
  const userId = process.getuid?.() ?? 0
  return userId === 0 ? undefined : { userId, groupId: process.getgid?.() ?? userId }
}

const removeTree = (path: string) => Effect.orDie(HostTree.remove(path))

const temporaryDirectory = Effect.acquireRelease(
  attemptOwn(tmpdir(), () => OwnFiles.temporaryDirectory("cogni-run-")),
  removeTree
)

/**
 * Writes files that the agent can read but not change. The modes do not depend on the umask of the host process. If one
 * fails, the others have ended too.
 */
const fill = async (path: string, files: ReadonlyArray<Input>): Promise<void> => {
  const written = await Promise.allSettled(
    files.map(async ({ content, name }) => {
      await OwnFiles.create(join(path, name), content, 0o644)
      await chmod(join(path, name), 0o644)
    })
  )
  for (const one of written) if (one.status === "rejected") throw one.reason
}

const writeFiles = (path: string, files: ReadonlyArray<Input>) =>
  Effect.acquireRelease(
    attemptOwn(path, async () => {
      await mkdir(path, { mode: 0o755 })
      await chmod(path, 0o755)
      await fill(path, files)
      return {
        type: "directory" as const,
        source: path,
        readOnly: true,
        held: await MountIdentity.ofPrivate(path)
      }
    }),
    () => removeTree(path)
  )

const examine = (directory: HeldDirectory, neverHeld: ReadonlyArray<Forbidden>): Promise<User> => {
  const { path } = directory
  const found = neverHeld.find(
    ({ path: other }) =>
      path === "/" || other === path || other.startsWith(`${path}/`) || path.startsWith(`${other}/`)
  )
  if (found !== undefined) {
    const what = found.name === undefined ? found.path : `${found.name} (${found.path})`
    throw refused(`would hand ${what} to the agent`, found.remedy)
  }
  return userFor(directory)
}

/**
 * Selects the user of the agent, never root: this process's user, the directory's owner, or the default user. Fails if
 * that user cannot work in the directory.
 */
const userFor = async (directory: HeldDirectory): Promise<User> => {
  const { groupId, mode, path, userId } = directory
  const own = ownUser()
  if (own !== undefined) {
    await access(directory.access, constants.R_OK | constants.W_OK | constants.X_OK).catch(() => {
      throw refused(
        `cannot be read and written by the agent, which runs as uid ${own.userId}`,
        remedyOf(path, own)
      )
    })
    return own
  }
  if (userId !== 0) return { userId, groupId: groupId === 0 ? userId : groupId }
  const bits = groupId === defaultUser.groupId ? mode >> 3 : mode
  if ((bits & 0o7) === 0o7) return defaultUser
  throw refused(
    `belongs to root and cannot be read and written by the agent, which runs as uid ${defaultUser.userId}`,
    remedyOf(path, defaultUser)
  )
}

/** Suggests `chown`, except for a home directory or one directly below `/`: a new owner would block logins. */
const remedyOf = (path: string, { groupId, userId }: User): string =>
  path === homedir() || dirname(path) === "/"
    ? "Use a project directory in it that belongs to that user"
    : `Change its owner: chown -R ${userId}:${groupId} ${ShellWord.quoted(path)}`

/** Creates the directory onto which the inputs are mounted. `mkdir` never follows a link at the end of its path. */
const controlDirectory = async ({ access, path }: HeldDirectory): Promise<void> => {
  const control = join(access, ".cogni")
  try {
    await mkdir(control, { mode: 0o755 })
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== "EEXIST") throw thrown
    if ((await lstat(control)).isDirectory()) return
    throw refused(
      "contains a .cogni that is not a directory, so the inputs cannot be mounted there",
      `Check ${join(path, ".cogni")} and remove it`
    )
  }
}
