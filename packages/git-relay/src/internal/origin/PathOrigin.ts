/**
 * A repository of this host, found and held without any git: which directory a container is given, and as whom it runs.
 *
 * Read here are names, owners, and the two small files by which a linked worktree and its repository name each other.
 * They have to agree: a `.git` file alone, which anybody who worked there can write, would lead to any repository.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import type { User } from "@cogni/sandbox-core/Posture"
import * as Descriptor from "@cogni/sandbox-host-files/Descriptor"
import * as HostPath from "@cogni/sandbox-host-files/HostPath"
import { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Effect, type Scope } from "effect"
import { dirname, join, resolve } from "node:path"
import { OriginUnavailable } from "../../GitRelayError.ts"
import * as HeldDirectory from "./HeldDirectory.ts"
import { oneLine } from "../git/ShownText.ts"

export interface PathOrigin {
  /** Held: the git directory, or the one that the worktrees share. */
  readonly directory: HostPath.Place
  /** Device and inode of it. */
  readonly identity: string
  /** Name of the linked worktree; empty for the repository itself. */
  readonly worktree: string
  /** As whom its containers run. */
  readonly user: User
  /**
   * Who writes what is delivered. No container runs as root, so a repository of root's is written by the host process,
   * without git; any other by a container that runs as its owner.
   */
  readonly writer: "container" | "host"
}

/** Of the process that runs a relay. */
export interface Self {
  readonly userId: number
  readonly groupId: number
  readonly groups: ReadonlyArray<number>
}

/** Who reads what only root may write. */
export const nobodyId = 65_534

const gitfileBytesMax = 4096

/** Found and held until the scope closes. */
export const open = (path: string): Effect.Effect<PathOrigin, OriginUnavailable, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.tryPromise({ try: () => find(path), catch: (thrown) => faultOf(path, thrown) }),
      ({ directory }) => Effect.promise(directory.close)
    ),
    ({ directory, worktree }) => {
      const { dev, gid, ino, uid } = directory.stats
      const owner = { uid: Number(uid), gid: Number(gid) }
      return { directory, worktree, identity: `${dev}:${ino}`, ...rolesOf(owner, self()) }
    }
  )

/** As whom a repository with that owner is opened. Pure. */
export const rolesOf = (
  owner: { readonly uid: number; readonly gid: number },
  { groupId, groups, userId }: Self
): Pick<PathOrigin, "user" | "writer"> => {
  if (userId !== 0) {
    const isMember = groupId === owner.gid || groups.includes(owner.gid)
    return { user: { userId, groupId: isMember ? owner.gid : groupId }, writer: "container" }
  }
  return owner.uid === 0
    ? { user: { userId: nobodyId, groupId: owner.gid }, writer: "host" }
    : { user: { userId: owner.uid, groupId: owner.gid }, writer: "container" }
}

interface Found {
  readonly directory: HostPath.Place
  readonly worktree: string
}

const self = (): Self => ({
  userId: process.getuid?.() ?? 0,
  groupId: process.getgid?.() ?? 0,
  groups: process.getgroups?.() ?? []
})

/** A directory by its path, over no link that somebody else could have made. */
const directoryAt = async (path: string): Promise<HostPath.Place> => {
  const { entry, parent } = await HostPath.find(path, { last: "follow" })
  await parent?.close()
  if (entry?.stats.isDirectory() === true) return entry
  await entry?.close()
  throw new Unfit(absent(path, entry === undefined ? "does not exist" : "is not a directory"))
}

/** As git does: the directory with `.git` in it, a bare one, or the name with `.git` after it. */
const find = async (path: string): Promise<Found> => {
  const named = await directoryAt(path).catch((thrown: unknown) => {
    if (!(thrown instanceof Unfit) || path.endsWith("/")) throw thrown
    return directoryAt(`${path}.git`).catch((other: unknown) => {
      throw other instanceof Unfit ? thrown : other
    })
  })
  let keep = named
  try {
    const inside = await HeldDirectory.peek(named, ".git")
    if (inside !== undefined && !inside.stats.isDirectory()) {
      await inside.close()
      if (inside.stats.isSymbolicLink()) throw new Unfit(linkedGit)
      const found = await worktreeOf(named)
      await named.close()
      return found
    }
    if (inside !== undefined) {
      keep = inside
      await named.close()
    }
    const missing = await missingIn(keep)
    if (missing !== undefined)
      throw new Unfit(
        absent(
          path,
          `is not a git repository: ${
            inside === undefined
              ? "there is no .git in it, and it is not a bare one"
              : `there is no ${missing} in its .git`
          }`
        )
      )
    return { directory: keep, worktree: "" }
  } catch (thrown) {
    await keep.close()
    throw thrown
  }
}

/** What a git directory has, and this one has not. */
const missingIn = async (directory: HostPath.Place): Promise<string | undefined> => {
  for (const name of ["HEAD", "objects", "refs"]) {
    const there = await HeldDirectory.peek(directory, name)
    await there?.close()
    if (there === undefined) return name
  }
  return undefined
}

/** The repository that a linked worktree belongs to, which has to say so too. */
const worktreeOf = async (named: HostPath.Place): Promise<Found> => {
  const text = await HeldDirectory.readPlain(named, ".git", gitfileBytesMax)
  const [, written] = /^gitdir: ([^\0\n]+)\n?$/u.exec(text ?? "") ?? []
  if (written === undefined) throw new Unfit(specialGit)
  const target = resolve(named.path, written)
  const [, shared, worktree] = /^(.+)\/worktrees\/([^/]+)$/u.exec(target) ?? []
  if (shared === undefined || worktree === undefined) throw new Unfit(elsewhere(target))
  const directory = await directoryAt(shared)
  try {
    if ((await namedBy(directory, worktree)) !== join(named.path, ".git")) throw new Unfit(elsewhere(target))
    return { directory, worktree }
  } catch (thrown) {
    await directory.close()
    throw thrown
  }
}

/** The `.git` file that a repository says its worktree of that name has. */
const namedBy = async (directory: HostPath.Place, worktree: string): Promise<string | undefined> => {
  const all = await HeldDirectory.child(directory, "worktrees")
  try {
    const own = await HeldDirectory.child(all, worktree)
    try {
      const text = await HeldDirectory.readPlain(own, "gitdir", gitfileBytesMax)
      return text === undefined ? undefined : resolve(own.path, text.trimEnd())
    } finally {
      await own.close()
    }
  } finally {
    await all.close()
  }
}

type Fault = ConstructorParameters<typeof OriginUnavailable>[0]

class Unfit extends Error {
  readonly fault: Fault
  constructor(fault: Fault) {
    super(fault.detail)
    this.fault = fault
  }
}

const absent = (path: string, why: string): Fault => ({
  fault: "not_found",
  detail: `at ${oneLine(path)} ${why}`,
  remedy: "Check the path: it is the directory that has .git in it, or a bare repository",
  isRetryable: false
})

const unsupported = (detail: string, remedy: string): Fault => ({
  fault: "unsupported",
  detail,
  remedy,
  isRetryable: false
})

const linkedGit = unsupported(
  "has a symbolic link in place of its .git directory",
  "Look where the link leads, then name that directory"
)

const specialGit = unsupported(
  "has something in place of its .git directory that is neither a directory nor a gitfile",
  "Repair that if you trust the repository, or name one that is whole"
)

const elsewhere = (target: string): Fault =>
  unsupported(
    `keeps its git directory elsewhere (${oneLine(target)}), and that directory does not name it as its worktree`,
    "Look whether that is the repository you mean, then name that directory"
  )

const faultOf = (path: string, thrown: unknown): OriginUnavailable => {
  if (thrown instanceof Unfit) return new OriginUnavailable(thrown.fault)
  if (thrown instanceof HostPathRefused) {
    const { detail, problem, remedy } = thrown
    if (problem === "not_found" || problem === "not_a_directory")
      return new OriginUnavailable(absent(path, oneLine(detail)))
    const fault = problem === "permission_denied" ? "forbidden" : "unsupported"
    return new OriginUnavailable({
      fault,
      detail: oneLine(`at ${path} ${detail}`),
      remedy,
      isRetryable: false
    })
  }
  if (Descriptor.isErrno(thrown, "ENOENT", "ENOTDIR"))
    return new OriginUnavailable(
      absent(path, `is not a whole git repository: ${oneLine((thrown as Error).message)}`)
    )
  if (Descriptor.isErrno(thrown, "EACCES"))
    return new OriginUnavailable({
      fault: "forbidden",
      detail: `may not be opened by this user (${oneLine(dirname(path))})`,
      remedy: "Run as the user that owns the repository",
      isRetryable: false
    })
  return new OriginUnavailable({
    fault: "other",
    detail: `cannot be opened: ${oneLine(messageOf(thrown))}`,
    remedy: "Look at the directory and its permissions",
    isRetryable: false
  })
}
