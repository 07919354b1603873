/** What lies in a directory that is held open: looked up in it by descriptor, and never over a link. */
import * as Descriptor from "@cogni/sandbox-host-files/Descriptor"
import type { Place } from "@cogni/sandbox-host-files/HostPath"
import { constants } from "node:fs"
import { type FileHandle, open } from "node:fs/promises"

/** By which the kernel reaches a name in it, wherever the directory is moved. */
export const within = ({ access }: Place, name: string): string => `${access}/${name}`

/** Whatever has that name, held and not opened; a link is itself. `undefined` where there is nothing. */
export const peek = async (at: Place, name: string): Promise<Place | undefined> => {
  let handle: FileHandle
  try {
    handle = await open(within(at, name), Descriptor.O_PATH | constants.O_NOFOLLOW)
  } catch (thrown) {
    if (Descriptor.isErrno(thrown, "ENOENT")) return undefined
    throw thrown
  }
  try {
    const stats = await handle.stat({ bigint: true })
    const path = `${at.path === "/" ? "" : at.path}/${name}`
    return { path, access: Descriptor.self(handle), stats, close: () => handle.close() }
  } catch (thrown) {
    await handle.close()
    throw thrown
  }
}

/** A directory in it. Throws ENOTDIR for anything else, a link to a directory included. */
export const child = async (at: Place, name: string): Promise<Place> => {
  const found = await peek(at, name)
  if (found?.stats.isDirectory() === true) return found
  await found?.close()
  const code = found === undefined ? "ENOENT" : "ENOTDIR"
  throw Object.assign(new Error(`${at.path}/${name} is not a directory`), { code })
}

/** The text of a plain file in it, so large at most; `undefined` where there is none, or something else. */
export const readPlain = async (at: Place, name: string, bytesMax: number): Promise<string | undefined> => {
  let file: FileHandle
  try {
    file = await open(within(at, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (thrown) {
    if (Descriptor.isErrno(thrown, "ENOENT", "ELOOP", "ENXIO", "ENOTDIR")) return undefined
    throw thrown
  }
  try {
    const stats = await file.stat()
    if (!stats.isFile() || stats.size > bytesMax) return undefined
    const bytes = Buffer.alloc(Math.min(bytesMax, stats.size))
    const { bytesRead } = await file.read(bytes, 0, bytes.byteLength, 0)
    return bytes.toString("utf8", 0, bytesRead)
  } finally {
    await file.close()
  }
}
