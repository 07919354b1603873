/**
 * Files and directories that are held by a descriptor, and the paths by which the kernel reaches them.
 *
 * A name below a directory that is held open is `/proc/self/fd/N/name`: the kernel looks it up in that directory,
 * whatever has been renamed meanwhile, as openat(2) would, which Node does not have.
 */
import { constants, existsSync, type Stats } from "node:fs"
import { type FileHandle, open } from "node:fs/promises"

/** A file, directory, link or device that is held open, for its facts and for look-ups in it. */
export interface Entry {
  readonly handle: FileHandle
  readonly stats: Stats
}

/**
 * Refers to a file without opening it, so that a FIFO is not waited for and a device not woken (open(2)). The same
 * number on every machine that Node runs on with Linux; Node does not export it.
 */
export const O_PATH = 0o10_000_000

const descriptors = "/proc/self/fd"

/** Whether this system can reach a file through a descriptor. Only Linux can. */
export const isSupported = (): boolean => process.platform === "linux" && existsSync(descriptors)

/** The path of what is held open. */
export const self = ({ fd }: FileHandle): string => `${descriptors}/${fd}`

/** The path of a name in a directory that is held open. */
export const at = (directory: FileHandle, name: string): string => `${self(directory)}/${name}`

export const isErrno = (thrown: unknown, ...codes: ReadonlyArray<string>): boolean =>
  codes.includes(String((thrown as NodeJS.ErrnoException | undefined)?.code))

/** For `Promise.catch`: a value in place of an error with one of these codes. Any other is thrown again. */
export const recover =
  <A>(codes: ReadonlyArray<string>, value: A) =>
  (thrown: unknown): A => {
    if (isErrno(thrown, ...codes)) return value
    throw thrown
  }

/** Holds what a path names, without following a link at its end and without opening it. */
export const peek = async (path: string | Buffer, flags = 0): Promise<Entry> => {
  const handle = await open(path, O_PATH | constants.O_NOFOLLOW | flags)
  try {
    return { handle, stats: await handle.stat() }
  } catch (thrown) {
    await handle.close()
    throw thrown
  }
}

/** The content of a file that is open for reading; what it grows by meanwhile counts too. Throws what it is given. */
export const readWhole = async (
  file: FileHandle,
  size: number,
  bytesMax: number,
  tooLarge: Error
): Promise<Uint8Array<ArrayBuffer>> => {
  let buffer = new Uint8Array(Math.min(Math.max(size, 4096), bytesMax) + 1)
  for (let bytes = 0; ;) {
    const { bytesRead } = await file.read(buffer, bytes)
    if (bytesRead === 0) return buffer.slice(0, bytes)
    bytes += bytesRead
    if (bytes > bytesMax) throw tooLarge
    if (bytes < buffer.byteLength) continue
    const grown = new Uint8Array(Math.min(2 * buffer.byteLength, bytesMax + 1))
    grown.set(buffer)
    buffer = grown
  }
}
