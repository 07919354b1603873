/**
 * Directories that belong to agents and are kept between their runs, such as the files of a session.
 *
 * They lie in a directory that only this user can write to. This process never reads their content: it creates them,
 * has them mounted, and removes them as a whole (`HostTree`).
 */
import { chmod, chown, lstat, mkdir, readdir } from "node:fs/promises"
import { dirname } from "node:path"
import * as OwnFiles from "./OwnFiles.ts"

/** Owner of a kept directory if this process is root. */
export interface Owner {
  readonly userId: number
  readonly groupId: number
}

export const defaultOwner: Owner = { userId: 1000, groupId: 1000 }

const isAbsent = (thrown: unknown): boolean => (thrown as NodeJS.ErrnoException).code === "ENOENT"

/** Whether a path is a directory. A link is not. */
export const exists = async (path: string): Promise<boolean> => {
  try {
    return (await lstat(path)).isDirectory()
  } catch (thrown) {
    if (isAbsent(thrown)) return false
    throw thrown
  }
}

/** Names of everything in a directory, which may not exist. */
export const list = async (path: string): Promise<ReadonlyArray<string>> => {
  try {
    return await readdir(path)
  } catch (thrown) {
    if (isAbsent(thrown)) return []
    throw thrown
  }
}

/** Creates a directory that only its owner can use, or gives its owner the access to it again. */
export const acquire = async (path: string, owner: Owner = defaultOwner): Promise<void> => {
  await OwnFiles.makeDirectory(dirname(path))
  let isGiven = false
  try {
    await mkdir(path, { mode: 0o700 })
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== "EEXIST") throw thrown
    const found = await lstat(path)
    if (!found.isDirectory()) throw new Error("the path exists and is not a directory", { cause: thrown })
    // Root owns it only if an earlier process created it and ended before it changed the owner.
    isGiven = found.uid !== 0
  }
  // An existing directory too: an agent may have removed its own access.
  await chmod(path, 0o700)
  if (!isGiven && process.getuid?.() === 0) await chown(path, owner.userId, owner.groupId)
}
