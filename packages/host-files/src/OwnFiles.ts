/**
 * Files that this program keeps for itself: records, audits, locks, bundles, inputs, directories for sockets.
 *
 * They lie in directories that only this user (or root) writes, so a name is opened by its path, in one system call:
 * no walk, and as fast as it can be. No file is opened through a link, none is made over another, and a directory that
 * other users may write is refused.
 */
import { closeSync, constants, fchmodSync, fstatSync, openSync } from "node:fs"
import {
  copyFile,
  type FileHandle,
  link as linkTo,
  lstat,
  mkdir,
  mkdtemp,
  open,
  rename,
  unlink
} from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { refused } from "./HostPathError.ts"

const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDWR, O_TRUNC, O_WRONLY } = constants

type Content = string | Uint8Array

/** Makes a directory of mode 0700 with a name of its own. */
export const temporaryDirectory = (prefix: string, parent: string = tmpdir()): Promise<string> =>
  mkdtemp(join(parent, prefix))

/** Makes a directory of mode 0700, and those above it that are missing. */
export const makeDirectory = async (path: string): Promise<void> => {
  await mkdir(path, { recursive: true, mode: 0o700 })
}

/** Makes a file; fails with `EEXIST` where there is anything of that name. */
export const create = async (path: string, content: Content, mode = 0o600): Promise<void> =>
  filled(await openOwn(path, O_WRONLY | O_CREAT | O_EXCL, mode), content)

/** Makes an empty file where there is none. */
export const touch = async (path: string): Promise<void> =>
  filled(await openOwn(path, O_WRONLY | O_CREAT | O_NONBLOCK), "")

/** Writes a whole file beside its name and renames it; a reader sees the old one or the new one. */
export const replace = async (path: string, content: Content, mode = 0o600): Promise<void> => {
  const draft = `${path}.${crypto.randomUUID()}.new`
  await create(draft, content, mode)
  await renamed(draft, path)
}

/** Adds to a regular file that is there. */
export const append = async (path: string, content: Content): Promise<void> => {
  const file = await open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK)
  await filled(file, content)
}

/** Opens a new file that only ever grows. */
export const openNewLog = (path: string): Promise<FileHandle> =>
  openOwn(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL)

/** Opens a file again that only ever grows. */
export const openLog = (path: string): Promise<FileHandle> => openOwn(path, O_RDWR | O_APPEND | O_NONBLOCK)

/** Opens a file that begins empty. */
export const openScratch = (path: string): Promise<FileHandle> =>
  openOwn(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK)

/** Renames, within a file system. A link under the new name is replaced and not followed. */
export const move = (from: string | Buffer, to: string): Promise<void> => rename(from, to)

/** Gives a file a second name; fails with `EEXIST` where there is anything of that name. */
export const link = (from: string, to: string): Promise<void> => linkTo(from, to)

/** Copies a file, sharing its blocks where the file system can, and renames the copy. */
export const copy = async (from: string, to: string): Promise<void> => {
  const draft = `${to}.${crypto.randomUUID()}.new`
  await copyFile(from, draft, constants.COPYFILE_FICLONE | constants.COPYFILE_EXCL)
  await renamed(draft, to)
}

/** Makes a file for a program that opens it itself, if it is missing, and closes it to others. */
export const secureSync = (path: string): void => {
  const descriptor = openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600)
  try {
    const { uid } = fstatSync(descriptor)
    if (!fstatSync(descriptor).isFile() || !isOurs(uid)) throw notOwn(path, "is no regular file of this user")
    fchmodSync(descriptor, 0o600)
  } finally {
    closeSync(descriptor)
  }
}

const openOwn = async (path: string, flags: number, mode = 0o600): Promise<FileHandle> => {
  await requireOwn(dirname(path))
  return open(path, flags | O_NOFOLLOW, mode)
}

const filled = async (file: FileHandle, content: Content): Promise<void> => {
  try {
    if (content.length > 0) await file.writeFile(content)
  } finally {
    await file.close()
  }
}

const renamed = async (draft: string, path: string): Promise<void> => {
  try {
    await rename(draft, path)
  } catch (thrown) {
    await unlink(draft).catch(() => undefined)
    throw thrown
  }
}

const isOurs = (uid: number) => uid === 0 || uid === (process.geteuid?.() ?? 0)

/** A group that a user has alone writes as that user does. */
const requireOwn = async (directory: string): Promise<void> => {
  const stats = await lstat(directory)
  if (!stats.isDirectory()) throw notOwn(directory, "is no directory")
  const isGroupOurs = stats.gid === (process.getegid?.() ?? 0)
  const others = isGroupOurs ? 0o002 : 0o022
  if (!isOurs(stats.uid)) throw notOwn(directory, `belongs to uid ${stats.uid}`)
  if ((stats.mode & others) !== 0) {
    throw notOwn(directory, `can be written by other users (mode ${(stats.mode & 0o7777).toString(8)})`)
  }
}

const notOwn = (path: string, detail: string) =>
  refused(path, "permission_denied", detail, "Name a directory that only this user can write")
