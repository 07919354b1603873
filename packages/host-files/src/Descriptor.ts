/**
 * Files and directories that are held by a descriptor, and the paths through which the kernel reaches them.
 *
 * A name in a directory that is held open is `/proc/self/fd/N/name`. The kernel looks it up in that directory, whatever
 * has been renamed meanwhile, like openat(2), which Node does not have.
 */
import { constants, existsSync, type Stats } from "node:fs"
import { type FileHandle, open } from "node:fs/promises"

/** A file, directory, link or device that is held open, for its metadata and for look-ups in it. */
export interface Entry {
  readonly handle: FileHandle
  readonly stats: Stats
}

/**
 * Refers to a file without opening it, so that a FIFO does not block and a device is not activated (open(2)). The value
 * is the same on every Linux platform of Node, which does not export it.
 */
export const O_PATH = 0o10_000_000

const descriptors = "/proc/self/fd"

/** Looked up once, because it does not change. */
let supported: boolean | undefined

/** Whether this system can reach a file through a descriptor. Only Linux can. */
export const isSupported = (): boolean =>
  (supported ??= process.platform === "linux" && existsSync(descriptors))

/** Returns the path of an open handle. */
export const self = ({ fd }: FileHandle): string => `${descriptors}/${fd}`

/** Returns the path of a name in a directory that is held open. */
export const at = (directory: FileHandle, name: string): string => `${self(directory)}/${name}`

export const isErrno = (thrown: unknown, ...codes: ReadonlyArray<string>): boolean =>
  codes.includes(String((thrown as NodeJS.ErrnoException | undefined)?.code))

/** For `Promise.catch`: replaces an error with one of these codes by a value. Any other is thrown again. */
export const recover =
  <A>(codes: ReadonlyArray<string>, value: A) =>
  (thrown: unknown): A => {
    if (isErrno(thrown, ...codes)) return value
    throw thrown
  }

/** Holds the file or directory at a path, without opening it and without following a link at its end. */
export const peek = async (path: string | Buffer, flags = 0): Promise<Entry> => {
  const handle = await open(path, O_PATH | constants.O_NOFOLLOW | flags)
  try {
    return { handle, stats: await handle.stat() }
  } catch (thrown) {
    await handle.close()
    throw thrown
  }
}

/** Reads an open file to its end, including bytes added meanwhile. Throws `tooLarge` beyond `bytesMax`. */
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
