/**
 * Descriptors that this process was started with, under the paths that shells give them: `/dev/stdin`, `/dev/fd/63`.
 *
 * The caller's shell opened them, so no agent can control them. A pipe, such as that of `<(…)`, is read to its end,
 * with a bound, and never closed, because its number could be reused for another file.
 */
import {
  constants,
  fstat,
  open as openDescriptor,
  read as readDescriptor,
  write as writeDescriptor
} from "node:fs"
import { open } from "node:fs/promises"
import { Socket } from "node:net"
import { promisify } from "node:util"
import { fromErrno } from "../HostPathError.ts"

const standard: Readonly<Record<string, number>> = { "/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2 }

/** Returns the descriptor that a path stands for, if any. */
export const of = (path: string): number | undefined => {
  const number = /^(?:\/dev|\/proc\/(?:self|thread-self))\/fd\/(\d{1,6})$/u.exec(path)?.[1]
  return number === undefined ? standard[path] : Number(number)
}

const statOf = promisify(fstat)
/** Opens without a handle, which would close the descriptor when it is garbage-collected. */
const openAgain = promisify(openDescriptor)
const readInto = promisify(readDescriptor)
const writeFrom = promisify(writeDescriptor)

const pathOf = (descriptor: number) => `/dev/fd/${descriptor}`

/** Reads a descriptor to its end. Throws `tooLarge` beyond `bytesMax`. */
export const read = async (
  descriptor: number,
  bytesMax: number,
  tooLarge: Error,
  signal: AbortSignal
): Promise<Uint8Array> => {
  const pieces: Array<Uint8Array> = []
  let total = 0
  const keep = (piece: Uint8Array) => {
    total += piece.byteLength
    if (total > bytesMax) throw tooLarge
    pieces.push(piece)
  }
  if (await isPipe(descriptor)) {
    // A thread that waits for a pipe could not be interrupted.
    const { O_NONBLOCK, O_RDONLY } = constants
    const fd = await openAgain(pathOf(descriptor), O_RDONLY | O_NONBLOCK, 0)
    for await (const piece of new Socket({ fd, readable: true, writable: false, signal })) {
      keep(piece as Uint8Array)
    }
  } else {
    for (;;) {
      signal.throwIfAborted()
      const buffer = new Uint8Array(64 * 1024)
      const { bytesRead } = await readInto(descriptor, buffer, 0, buffer.byteLength, null)
      if (bytesRead === 0) break
      keep(buffer.subarray(0, bytesRead))
    }
  }
  return Buffer.concat(pieces, total)
}

/** Whether a descriptor is a pipe. Fails if it does not exist, or if it is a socket or a directory. */
export const isPipe = async (descriptor: number): Promise<boolean> => {
  const stats = await statOf(descriptor)
  if (stats.isDirectory()) throw fromErrno(pathOf(descriptor), { code: "EISDIR" })
  if (stats.isSocket()) throw fromErrno(pathOf(descriptor), { code: "ENXIO" })
  return stats.isFIFO()
}

/** Writes all bytes, and waits while a pipe is full. */
export const write = async (descriptor: number, bytes: Uint8Array): Promise<void> => {
  // A pipe of this process may be non-blocking. Opened again, it blocks.
  const again = (await isPipe(descriptor)) ? await open(pathOf(descriptor), "w") : undefined
  try {
    for (let at = 0; at < bytes.byteLength;) {
      const { bytesWritten } = await writeFrom(
        again?.fd ?? descriptor,
        bytes,
        at,
        bytes.byteLength - at,
        null
      )
      at += bytesWritten
    }
  } finally {
    await again?.close()
  }
}
