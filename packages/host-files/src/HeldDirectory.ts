/**
 * A host directory that is opened once and held.
 *
 * Whatever is renamed, replaced or linked afterwards, {@link HeldDirectory.access} leads to the directory that was
 * checked. Compare {@link HeldDirectory.identity} with the device and inode that another process sees to determine
 * whether it uses the same directory.
 */
import { Effect, type Scope } from "effect"
import { constants } from "node:fs"
import { lstat, open as openFile } from "node:fs/promises"
import * as Descriptor from "./Descriptor.ts"
import { attempt, fromErrno, type HostPathRefused, refused } from "./HostPathError.ts"
import * as HostPath from "./HostPath.ts"

export interface HeldDirectory {
  /** Absolute path without links, as of its opening. */
  readonly path: string
  /** Path through which this process reaches it: `/proc/self/fd/N`, or `path` if the system does not support that. */
  readonly access: string
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
  /** Handling of a link at the end of the path (default `refuse`). `follow` treats it like a link above it. */
  readonly last?: "refuse" | "follow" | undefined
}

/**
 * Opens a directory and holds it until the scope closes. A link at the end of the path is refused, unless `last` says
 * otherwise. One above it is followed only if no other user could have made it ({@link HostPath}).
 */
export const hold = (
  path: string,
  options?: HoldOptions
): Effect.Effect<HeldDirectory, HostPathRefused, Scope.Scope> =>
  held(path, async () => {
    const found = await HostPath.find(path, { ...options, last: options?.last ?? "refuse" })
    await found.parent?.close()
    return found
  })

/** Holds a directory by its name in a held directory. A link is not followed. */
export const child = (
  parent: HeldDirectory,
  name: string
): Effect.Effect<HeldDirectory, HostPathRefused, Scope.Scope> => {
  const path = pathOf(parent, name)
  return held(path, async () => ({
    above: [...parent.above, parent.identity],
    entry: await HostPath.heldPlace(path, at(parent, name))
  }))
}

/** Returns the path of a name in a held directory, which stays valid if the directory is moved. */
export const at = ({ access }: HeldDirectory, name: string): string => `${access}/${name}`

/** Returns the kind of an entry, without following a link; `undefined` if it does not exist. */
export const kindOf = (
  directory: HeldDirectory,
  name: string
): Effect.Effect<"directory" | "link" | "other" | undefined, HostPathRefused> =>
  attempt(pathOf(directory, name), async () => {
    const stats = await lstat(at(directory, name)).catch(Descriptor.recover(["ENOENT"], undefined))
    if (stats === undefined) return undefined
    return stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "link" : "other"
  })

/** Reads a regular file of at most `bytesMax` bytes; `undefined` if it does not exist or is something else. */
export const readText = (
  directory: HeldDirectory,
  name: string,
  bytesMax: number
): Effect.Effect<string | undefined, HostPathRefused> =>
  attempt(pathOf(directory, name), async () => {
    const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants
    const file = await openFile(at(directory, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(
      Descriptor.recover(["ENOENT", "ELOOP", "ENXIO", "ENOTDIR"], undefined)
    )
    if (file === undefined) return undefined
    try {
      const stats = await file.stat()
      if (!stats.isFile() || stats.size > bytesMax) return undefined
      const bytes = Buffer.alloc(stats.size)
      const { bytesRead } = await file.read(bytes, 0, bytes.byteLength, 0)
      return bytes.toString("utf8", 0, bytesRead)
    } finally {
      await file.close()
    }
  })

const pathOf = ({ path }: HeldDirectory, name: string) => `${path === "/" ? "" : path}/${name}`

const held = (path: string, find: () => Promise<Pick<HostPath.Found, "above" | "entry">>) =>
  Effect.acquireRelease(
    attempt(path, async () => {
      const { above, entry } = await find()
      if (entry === undefined) throw fromErrno(path, { code: "ENOENT" })
      if (entry.stats.isDirectory()) return { above, entry }
      await entry.close()
      throw refused(path, "not_a_directory", "is not a directory", "Check its spelling")
    }),
    ({ entry }) => Effect.promise(() => entry.close())
  ).pipe(
    Effect.map(({ above, entry }): HeldDirectory => ({
      path: entry.path,
      access: entry.access,
      identity: HostPath.identityOf(entry.stats),
      above,
      userId: Number(entry.stats.uid),
      groupId: Number(entry.stats.gid),
      mode: Number(entry.stats.mode & 0o7777n)
    }))
  )
