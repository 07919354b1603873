/**
 * Finds and holds a repository of this host without git: the directory that a container gets, and the user that it runs
 * as.
 *
 * It reads only names, owners, and the two small files by which a linked worktree and its repository name each other.
 * These must agree, because a `.git` file alone, which anyone who worked there can write, could lead to any repository.
 */
import type { User } from "@cogni/sandbox-core/Posture"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import type { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Effect } from "effect"
import { join, resolve } from "node:path"
import { OriginUnavailable } from "../../GitRelayError.ts"
import { oneLine } from "../git/ShownText.ts"

export interface PathOrigin {
  /** The held directory: the git directory, or the one that the worktrees share. */
  readonly directory: HeldDirectory.HeldDirectory
  /** Device and inode of the directory. */
  readonly identity: string
  /** Name of the linked worktree; empty for the repository itself. */
  readonly worktree: string
  /** User that its containers run as. */
  readonly user: User
  /**
   * Process that writes a delivery. No container runs as root, so if root runs the host process and owns the
   * repository, the host process writes, without git. A container writes to any other repository.
   */
  readonly writer: "container" | "host"
}

/** User and groups of the process that runs a relay. */
export interface Self extends User {
  readonly groups: ReadonlyArray<number>
}

/** User that reads repositories of root. */
export const nobodyId = 65_534

const gitfileBytesMax = 4096

/** Finds a repository, and holds it until the scope closes. */
export const open = (path: string) =>
  find(path).pipe(
    Effect.catchTag("HostPathRefused", (refused) => Effect.fail(unavailable(path, refused))),
    Effect.map(({ directory, worktree }): PathOrigin => ({
      directory,
      worktree,
      identity: `${directory.identity.device}:${directory.identity.inode}`,
      ...rolesOf(directory, self())
    }))
  )

/** Returns the user that opens a repository with this owner, and which process writes to it. Pure. */
export const rolesOf = (
  owner: User,
  { groupId, groups, userId }: Self
): Pick<PathOrigin, "user" | "writer"> => {
  if (userId !== 0) {
    const isMember = groupId === owner.groupId || groups.includes(owner.groupId)
    return { user: { userId, groupId: isMember ? owner.groupId : groupId }, writer: "container" }
  }
  return owner.userId === 0
    ? { user: { userId: nobodyId, groupId: owner.groupId }, writer: "host" }
    : { user: { userId: owner.userId, groupId: owner.groupId }, writer: "container" }
}

const self = (): Self => ({
  userId: process.getuid?.() ?? 0,
  groupId: process.getgid?.() ?? 0,
  groups: process.getgroups?.() ?? []
})

/** Holds a directory by its path, without following a link that another user could have made. */
const directoryAt = (path: string) => HeldDirectory.hold(path, { last: "follow" })

const isMissing = ({ problem }: HostPathRefused) => problem === "not_found" || problem === "not_a_directory"

/** Searches as git does: the directory with `.git` in it, a bare repository, or the name with `.git` after it. */
const find = Effect.fnUntraced(function* (path: string) {
  const named = yield* directoryAt(path).pipe(
    Effect.catchIf(
      (refused) => isMissing(refused) && !path.endsWith("/"),
      (first) => Effect.mapError(directoryAt(`${path}.git`), (second) => (isMissing(second) ? first : second))
    )
  )
  const kind = yield* HeldDirectory.kindOf(named, ".git")
  if (kind === "link") return yield* linkedGit
  if (kind === "other") return yield* worktreeOf(named)
  const directory = kind === undefined ? named : yield* HeldDirectory.child(named, ".git")
  for (const name of ["HEAD", "objects", "refs"]) {
    if ((yield* HeldDirectory.kindOf(directory, name)) !== undefined) continue
    const lacks =
      kind === undefined
        ? "there is no .git in it, and it is not a bare one"
        : `there is no ${name} in its .git`
    return yield* absent(path, `is not a git repository: ${lacks}`)
  }
  return { directory, worktree: "" }
})

/** Returns the repository of a linked worktree. The repository must also name the worktree. */
const worktreeOf = Effect.fnUntraced(function* (named: HeldDirectory.HeldDirectory) {
  const text = yield* HeldDirectory.readText(named, ".git", gitfileBytesMax)
  const [, written] = /^gitdir: ([^\0\n]+)\n?$/u.exec(text ?? "") ?? []
  if (written === undefined) return yield* specialGit
  const target = resolve(named.path, written)
  const [, shared, worktree] = /^(.+)\/worktrees\/([^/]+)$/u.exec(target) ?? []
  if (shared === undefined || worktree === undefined) return yield* elsewhere(target)
  const directory = yield* directoryAt(shared)
  const own = yield* HeldDirectory.child(yield* HeldDirectory.child(directory, "worktrees"), worktree)
  const gitdir = yield* HeldDirectory.readText(own, "gitdir", gitfileBytesMax)
  const gitfile = join(named.path, ".git")
  if (gitdir === undefined || resolve(own.path, gitdir.trimEnd()) !== gitfile) return yield* elsewhere(target)
  return { directory, worktree }
})

const absent = (path: string, why: string) =>
  new OriginUnavailable({
    fault: "not_found",
    detail: `at ${oneLine(path)} ${why}`,
    remedy: "Check the path: it must be the directory that contains .git, or a bare repository"
  })

const unsupported = (detail: string, remedy: string) =>
  new OriginUnavailable({ fault: "unsupported", detail, remedy })

const linkedGit = unsupported(
  "has a symbolic link in place of its .git directory",
  "Check where the link leads, then name that directory"
)

const specialGit = unsupported(
  "has something in place of its .git directory that is neither a directory nor a gitfile",
  "Repair the repository if you trust it, or use an intact one"
)

const elsewhere = (target: string) =>
  unsupported(
    `keeps its git directory elsewhere (${oneLine(target)}), and that directory does not name it as its worktree`,
    "Check that this is the repository you mean, then name that directory"
  )

const unavailable = (path: string, refused: HostPathRefused): OriginUnavailable => {
  const { detail, path: at, problem, remedy } = refused
  if (isMissing(refused))
    return absent(path, oneLine(at === path ? detail : `is not a complete git repository: ${at} ${detail}`))
  return new OriginUnavailable({
    fault: problem === "permission_denied" ? "forbidden" : "unsupported",
    detail: oneLine(`at ${at} ${detail}`),
    remedy
  })
}
