/**
 * A directory of the host that is opened once and held: a directory, not a path.
 *
 * Whatever is renamed, exchanged or linked afterwards, {@link HeldDirectory.access} is the directory that was judged.
 * Compare {@link HeldDirectory.identity} with the device and inode that another process sees to learn whether it works
 * in the same one.
 */
import { Effect, type Scope } from "effect"
import { fromErrno, type HostPathRefused } from "./HostPathError.ts"
import * as HostPath from "./HostPath.ts"

export interface HeldDirectory {
  /** Absolute and without a link in it, as it was when it was opened. */
  readonly path: string
  /** By which this process reaches it: `/proc/self/fd/N`. A path where the system has no such thing. */
  readonly access: string
  /** By which other processes of this user, and root, reach it while this process lives: `/proc/PID/fd/N`. */
  readonly accessFromOutside: string
  readonly identity: HostPath.Identity
  /** Every directory above it, from the root down, as it was opened. */
  readonly above: ReadonlyArray<HostPath.Identity>
  readonly userId: number
  readonly groupId: number
  /** Permission bits. */
  readonly mode: number
}

export interface HoldOptions {
  /** Directories that agents may write: no link is followed in or below one. */
  readonly agents?: ReadonlyArray<HostPath.Identity> | undefined
}

/**
 * Opens a directory and holds it until the scope closes. A link at the end of the path is refused; one above it is
 * followed only where no other user could have made it ({@link HostPath}).
 */
export const hold = (
  path: string,
  options?: HoldOptions
): Effect.Effect<HeldDirectory, HostPathRefused, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.tryPromise({ try: () => open(path, options), catch: (thrown) => fromErrno(path, thrown) }),
    ({ entry }) => Effect.promise(() => entry.close())
  ).pipe(Effect.map(({ directory }) => directory))

const open = async (path: string, options: HoldOptions | undefined) => {
  const found = await HostPath.find(path, { ...options, last: "refuse" })
  const { above, entry, parent } = found
  try {
    if (entry === undefined) throw fromErrno(path, { code: "ENOENT" })
    if (!entry.stats.isDirectory()) throw fromErrno(path, { code: "ENOTDIR" })
  } catch (thrown) {
    await HostPath.close(found)
    throw thrown
  }
  await parent?.close()
  const directory: HeldDirectory = {
    path: entry.path,
    access: entry.access,
    accessFromOutside: entry.access.replace(/^\/proc\/self\//u, `/proc/${process.pid}/`),
    identity: HostPath.identityOf(entry.stats),
    above,
    userId: Number(entry.stats.uid),
    groupId: Number(entry.stats.gid),
    mode: Number(entry.stats.mode & 0o7777n)
  }
  return { directory, entry }
}

/** Whether one directory is the other or lies below it. */
export const isWithin = (
  inner: Pick<HeldDirectory, "above" | "identity">,
  outer: HostPath.Identity
): boolean => [...inner.above, inner.identity].some((one) => HostPath.isSame(one, outer))
