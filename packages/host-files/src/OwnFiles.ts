/**
 * Internal files of this program: records, audits, locks, bundles, inputs, directories for sockets.
 *
 * They are in directories that only this user (or root) can write, so a file is opened by its path in one system call,
 * without a walk. No file is opened through a link, none is created over another, and a directory that other users may
 * write is refused.
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
  stat,
  unlink
} from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { isErrno } from "./Descriptor.ts"
import { refused } from "./HostPathError.ts"

const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDWR, O_TRUNC, O_WRONLY } = constants

type Content = string | Uint8Array

/** Makes a directory of mode 0700 with a unique name. */
export const temporaryDirectory = (prefix: string, parent: string = tmpdir()): Promise<string> =>
  mkdtemp(join(parent, prefix))

/**
 * Makes a directory of mode 0700, and those above it that are missing. Throws a `HostPathRefused` if a file lies there,
 * or if the file system takes no new directories.
 *
 * `mkdir` of Node with `recursive` never returns below `/proc`: its kernel answers `ENOENT` in a directory that exists.
 */
export const makeDirectory = async (path: string): Promise<void> => {
  const missing: Array<string> = []
  let present = resolve(path)
  while (!(await isMade(path, present))) {
    missing.push(present)
    present = dirname(present)
  }
  for (const directory of missing.toReversed()) {
    if (!(await isMade(path, directory))) throw takesNone(path, dirname(directory))
  }
}

/** Makes one directory, or accepts an existing one. Returns whether it exists now: `false` if its parent is missing. */
const isMade = async (path: string, directory: string): Promise<boolean> => {
  try {
    await mkdir(directory, { mode: 0o700 })
    return true
  } catch (thrown) {
    const found = await stat(directory).catch(() => undefined)
    if (found?.isDirectory() === true) return true
    if (found !== undefined) throw isInWay(path, directory, "a file")
    if (isErrno(thrown, "EEXIST")) throw isInWay(path, directory, "a link that leads nowhere")
    // `ENOTDIR`: a directory above it is a file, which is found next.
    if (isErrno(thrown, "ENOENT", "ENOTDIR")) return false
    throw thrown
  }
}

/** Makes a directory of mode 0700, or accepts an existing one that only this user can write. */
export const makePrivateDirectory = async (path: string): Promise<void> => {
  await makeDirectory(path)
  await requireOwn(path, true)
}

/** Makes a file. Fails with `EEXIST` if anything has that name. */
export const create = async (path: string, content: Content, mode = 0o600): Promise<void> =>
  filled(await openOwn(path, O_WRONLY | O_CREAT | O_EXCL, mode), content)

/** Makes an empty file if it does not exist. */
export const touch = async (path: string): Promise<void> =>
  filled(await openOwn(path, O_WRONLY | O_CREAT | O_NONBLOCK), "")

/** Replaces a whole file atomically, by renaming a draft: a reader sees the old one or the new one. */
export const replace = async (path: string, content: Content, mode = 0o600): Promise<void> => {
  const draft = `${path}.${crypto.randomUUID()}.new`
  await create(draft, content, mode)
  await renamed(draft, path)
}

/** Appends to an existing file. */
export const append = async (path: string, content: Content): Promise<void> => {
  const file = await open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK)
  await filled(file, content)
}

/** Creates a file and opens it for appending. */
export const openNewLog = (path: string): Promise<FileHandle> =>
  openOwn(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL)

/** Opens an existing file for reading and appending. */
export const openLog = (path: string): Promise<FileHandle> => openOwn(path, O_RDWR | O_APPEND | O_NONBLOCK)

/** Opens a file for writing, and creates or truncates it. */
export const openScratch = (path: string): Promise<FileHandle> =>
  openOwn(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK)

/** Renames, within a file system. A link under the new name is replaced and not followed. */
export const move = (from: string | Buffer, to: string): Promise<void> => rename(from, to)

/** Gives a file a second name. Fails with `EEXIST` if anything has that name. */
export const link = (from: string, to: string): Promise<void> => linkTo(from, to)

/** Copies a file, sharing its blocks where the file system can, and renames the copy. */
export const copy = async (from: string, to: string): Promise<void> => {
  const draft = `${to}.${crypto.randomUUID()}.new`
  await copyFile(from, draft, constants.COPYFILE_FICLONE | constants.COPYFILE_EXCL)
  await renamed(draft, to)
}

/** Creates a file if it is missing, for code that opens it itself, and denies other users access. */
export const secureSync = (path: string): void => {
  const descriptor = openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600)
  try {
    const { uid } = fstatSync(descriptor)
    if (!fstatSync(descriptor).isFile() || !isOurs(uid))
      throw notOwn(path, "is not a regular file of this user")
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

/** Refuses a directory that other users may write. This user's own group may write, unless it `isPrivate`. */
const requireOwn = async (directory: string, isPrivate = false): Promise<void> => {
  const stats = await lstat(directory)
  if (!stats.isDirectory()) throw notOwn(directory, "is not a directory")
  const isGroupOurs = !isPrivate && stats.gid === (process.getegid?.() ?? 0)
  const others = isGroupOurs ? 0o002 : 0o022
  if (!isOurs(stats.uid)) throw notOwn(directory, `belongs to uid ${stats.uid}`)
  if ((stats.mode & others) !== 0) {
    throw notOwn(directory, `can be written by other users (mode ${(stats.mode & 0o7777).toString(8)})`)
  }
}

const isInWay = (path: string, component: string, kind: string) =>
  refused(
    path,
    "not_a_directory",
    `cannot be created, because ${component === path ? "it" : JSON.stringify(component)} is ${kind}`,
    "Name a directory, or move that file away",
    component
  )

const takesNone = (path: string, parent: string) =>
  refused(
    path,
    "invalid_path",
    `cannot be created, because ${JSON.stringify(parent)} takes no new directories`,
    "Name a directory on a disk that this user can write to",
    parent
  )

const notOwn = (path: string, detail: string) =>
  refused(path, "permission_denied", detail, "Name a directory that only this user can write")
