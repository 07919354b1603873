/**
 * Host files that a user names: read as a whole, or reserved before a sandbox starts and written after it has ended.
 *
 * {@link HostPath} resolves the path. Only regular files are opened, so that no FIFO blocks and no device is activated.
 * A FIFO that the caller's shell opened for this process (`<(…)`, `/dev/stdin`) is read as one of its descriptors. A
 * file is written under a temporary name and renamed, through its directory, which is held open.
 */
import { Effect, type Scope } from "effect"
import { randomBytes } from "node:crypto"
import { constants } from "node:fs"
import { lstat, open, rename, unlink } from "node:fs/promises"
import { attempt, fromErrno, type HostPathRefused, refused } from "./HostPathError.ts"
import * as HostPath from "./HostPath.ts"
import * as Descriptor from "./Descriptor.ts"
import * as InheritedDescriptor from "./internal/InheritedDescriptor.ts"

export interface ReadOptions {
  /** A longer file is refused. */
  readonly bytesMax: number
  /** Directories that agents may write: no link is followed in or below one. */
  readonly agents?: ReadonlyArray<HostPath.Identity> | undefined
  /** Whether the path may be a descriptor that this process was started with, such as `/dev/stdin` (default no). */
  readonly streams?: boolean | undefined
}

export interface Content {
  readonly bytes: Uint8Array
  /** Permission bits; `undefined` for a descriptor that this process was started with. */
  readonly mode: number | undefined
  /** Absolute path without links, as it was walked. */
  readonly path: string
}

export interface ReserveOptions {
  /** Directories that agents may write: a file in or below one is refused. */
  readonly agents?: ReadonlyArray<HostPath.Identity> | undefined
  /** Permission bits of a new file, less the umask (default 0666). A replaced file keeps its own. */
  readonly mode?: number | undefined
}

export interface Reservation {
  /** The path as given. */
  readonly path: string
  /** Writes the whole file and moves it into place. */
  readonly write: (content: string | Uint8Array) => Effect.Effect<void, HostPathRefused>
}

/** Reads a regular file, or a descriptor that this process was started with. */
export const read = (path: string, options: ReadOptions): Effect.Effect<Content, HostPathRefused> => {
  const tooLarge = refused(
    path,
    "too_large",
    `has more than ${options.bytesMax} bytes`,
    "Name a shorter file"
  )
  const descriptor = InheritedDescriptor.of(path)
  if (descriptor !== undefined && options.streams !== true) {
    return Effect.fail(refused(path, "not_a_file", "is a stream", "Name a regular file"))
  }
  return attempt(path, async (signal): Promise<Content> => {
    if (descriptor === undefined) return readRegular(path, options, tooLarge)
    const bytes = await InheritedDescriptor.read(descriptor, options.bytesMax, tooLarge, signal)
    return { bytes, mode: undefined, path }
  })
}

const readRegular = async (
  path: string,
  { agents, bytesMax }: ReadOptions,
  tooLarge: HostPathRefused
): Promise<Content> => {
  const found = await HostPath.find(path, { last: "follow", agents })
  try {
    const { entry } = found
    if (entry === undefined) throw fromErrno(path, { code: "ENOENT" })
    requireRegular(path, entry, "Name a regular file, or use - or <(…) for a stream")
    if (entry.stats.size > bytesMax) throw tooLarge
    const file = await open(entry.access, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const now = await file.stat({ bigint: true })
      if (!HostPath.isSame(HostPath.identityOf(now), HostPath.identityOf(entry.stats))) throw exchanged(path)
      const bytes = await Descriptor.readWhole(file, Number(now.size), bytesMax, tooLarge)
      return { bytes, mode: Number(now.mode & 0o7777n), path: found.path }
    } finally {
      await file.close()
    }
  } finally {
    await HostPath.close(found)
  }
}

/**
 * Prepares a file for writing, so that an unusable path fails before anything else happens. Its directory and a
 * temporary file in it are held until the scope closes. The file changes only when it is written.
 */
export const reserve = (
  path: string,
  options: ReserveOptions = {}
): Effect.Effect<Reservation, HostPathRefused, Scope.Scope> => {
  const writing = (write: (bytes: Uint8Array) => Promise<void>): Reservation => ({
    path,
    write: (content) => Effect.uninterruptible(attempt(path, () => write(bytesOf(content))))
  })
  const descriptor = InheritedDescriptor.of(path)
  if (descriptor !== undefined) {
    return Effect.as(
      attempt(path, () => InheritedDescriptor.isPipe(descriptor)),
      writing((bytes) => InheritedDescriptor.write(descriptor, bytes))
    )
  }
  return Effect.acquireRelease(
    attempt(path, () => prepare(path, options)),
    (draft) => Effect.promise(() => discard(draft))
  ).pipe(Effect.map((draft) => writing((bytes) => settle(path, draft, bytes))))
}

type Draft = Awaited<ReturnType<typeof prepare>>

const prepare = async (path: string, { agents = [], mode = 0o666 }: ReserveOptions) => {
  const { above, entry, parent } = await HostPath.find(path, { last: "keep", agents })
  try {
    if (parent === undefined || path.endsWith("/")) throw fromErrno(path, { code: "EISDIR" })
    const inside = above.some((directory) => agents.some((agent) => HostPath.isSame(agent, directory)))
    if (inside) throw insideWorkspace(path)
    if (entry !== undefined) requireRegular(path, entry, "Name a regular file")
    const temporary = `${parent.access}/.cogni-${randomBytes(8).toString("hex")}`
    const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants
    const file = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
    const identity = HostPath.identityOf(await file.stat({ bigint: true }))
    return {
      parent,
      file,
      identity,
      /** The owner of the file that is replaced, if this user is root. */
      owner:
        entry === undefined || process.geteuid?.() !== 0
          ? undefined
          : { userId: Number(entry.stats.uid), groupId: Number(entry.stats.gid) },
      mode: entry === undefined ? mode & ~process.umask() : Number(entry.stats.mode & 0o777n),
      temporary,
      target: `${parent.access}/${parent.name}`,
      isSettled: false
    }
  } catch (thrown) {
    await parent?.close()
    throw thrown
  } finally {
    await entry?.close()
  }
}

/** Checks whether a path still leads to this file, to detect its replacement. */
const liesAt = (path: string, identity: HostPath.Identity): Promise<boolean> =>
  lstat(path, { bigint: true }).then(
    (stats) => HostPath.isSame(HostPath.identityOf(stats), identity),
    () => false
  )

const settle = async (path: string, draft: Draft, bytes: Uint8Array): Promise<void> => {
  const { file, identity, mode, owner, target, temporary } = draft
  await file.truncate(0)
  for (let at = 0; at < bytes.byteLength;) {
    at += (await file.write(bytes, at, bytes.byteLength - at, at)).bytesWritten
  }
  if (owner !== undefined) await file.chown(owner.userId, owner.groupId)
  await file.chmod(mode)
  await file.sync()
  if (!(await liesAt(temporary, identity))) throw exchanged(path)
  // Renaming replaces a link, it does not follow it. A directory of that name is an error.
  await rename(temporary, target)
  draft.isSettled = true
  if (!(await liesAt(target, identity))) throw exchanged(path)
}

const discard = async ({ file, identity, isSettled, parent, temporary }: Draft): Promise<void> => {
  if (!isSettled && (await liesAt(temporary, identity))) await unlink(temporary).catch(() => undefined)
  await file.close()
  await parent.close()
}

/** Writes a file in one step, like {@link reserve}. For files that are not written after an agent has run. */
export const write = (
  path: string,
  content: string | Uint8Array,
  options?: ReserveOptions
): Effect.Effect<void, HostPathRefused> =>
  Effect.scoped(Effect.flatMap(reserve(path, options), (reserved) => reserved.write(content)))

const bytesOf = (content: string | Uint8Array) =>
  typeof content === "string" ? new TextEncoder().encode(content) : content

const exchanged = (path: string) =>
  refused(
    path,
    "unreadable",
    "was replaced by another process while in use",
    "Name a path in a directory that only this user can write"
  )

const insideWorkspace = (path: string) =>
  refused(
    path,
    "inside_workspace",
    "lies in the workspace, where the agent can replace it",
    "Name a file outside of the workspace"
  )

const requireRegular = (path: string, { stats }: HostPath.Place, remedy: string) => {
  if (stats.isFile()) return
  if (stats.isSymbolicLink())
    throw refused(path, "link_refused", "is a symbolic link", "Name the file itself")
  const kind = stats.isDirectory()
    ? "a directory"
    : stats.isFIFO()
      ? "a FIFO"
      : stats.isSocket()
        ? "a socket"
        : "a device"
  throw refused(path, "not_a_file", `is ${kind}`, remedy)
}
