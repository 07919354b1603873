/**
 * Keeps files of packages in a directory of the host, under their package and the hash that its registry states.
 *
 * A file gets its name only after its content had this hash, and is checked again whenever it is read. So neither a
 * sandbox nor a broken registry can put other content under a name, and all accounts can share a directory. The package
 * is a part of the name, because metadata that states the hash of another package's file must not lead to it. Several
 * threads and processes may use one directory at the same time.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as Effect from "effect/Effect"
import type { Registry } from "@cogni/sandbox-core/PackagePattern"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as FileHash from "./FileHash.ts"

interface FileCacheOptions {
  readonly directory: string
  readonly bytesMax: number
}

/** A file of a package. */
interface Keyed {
  readonly registry: Registry
  readonly name: string
  readonly hash: FileHash.FileHash
}

/** A file that is being written. It has no name until `commit`. */
export interface Draft {
  readonly write: (piece: Uint8Array) => Promise<void>
  /** Keeps the file. Its content must have been checked. */
  readonly commit: () => Promise<void>
  /** Removes the draft, unless it was committed. */
  readonly drop: () => Promise<void>
}

export interface Kept {
  readonly bytes: number
  readonly body: AsyncIterable<Uint8Array>
  readonly close: () => Promise<void>
}

export interface FileCache {
  /** Opens a file, if it is kept. */
  readonly find: (file: Keyed) => Effect.Effect<Kept | undefined>
  /** Begins to keep a file. `undefined` if the host's disk does not allow it: nothing depends on it. */
  readonly draft: (file: Keyed) => Effect.Effect<Draft | undefined>
  /** Removes a file whose content no longer has its hash. */
  readonly remove: (file: Keyed) => Effect.Effect<void>
}

/** Part of the limit after which the directory is measured again. */
const measuredPart = 1 / 32

/** How full the directory is after files were removed. */
const keptPart = 0.9

/** Age of a draft whose writer is considered dead. */
const draftMillisMax = 3_600_000

/** Part of the limit for all unfinished files together. A file beyond it is served and not kept. */
const draftsPart = 1 / 4

const draftSuffix = ".new"

/** Creates the directory at its first use. */
export const make = ({ bytesMax, directory }: FileCacheOptions): FileCache => {
  let prepared: Promise<void> | undefined
  let writtenBytes = Number.POSITIVE_INFINITY
  let sweeping: Promise<void> | undefined
  const drafts = { bytes: 0, bytesMax: bytesMax * draftsPart }
  const nameOf = ({ hash, name, registry }: Keyed) =>
    path.join(directory, `${FileHash.format(hash)}-${packageOf(registry, name)}`)

  const prepare = () => (prepared ??= OwnFiles.makePrivateDirectory(directory))

  const wrote = (bytes: number) => {
    writtenBytes += bytes
    if (writtenBytes < bytesMax * measuredPart || sweeping !== undefined) return
    writtenBytes = 0
    sweeping = sweep(directory, bytesMax)
      .catch(() => undefined)
      .finally(() => {
        sweeping = undefined
      })
  }

  return {
    find: (file) =>
      attempt(
        async () => {
          const name = nameOf(file)
          const handle = await fs.open(name, "r")
          const { size } = await handle.stat()
          const now = new Date()
          await handle.utimes(now, now)
          return { bytes: size, body: pieces(handle), close: () => handle.close().catch(() => undefined) }
        },
        () => "not kept"
      ).pipe(Effect.orElseSucceed(() => undefined)),
    draft: (file) =>
      attempt(
        async () => {
          await prepare()
          const name = `${nameOf(file)}.${crypto.randomUUID()}${draftSuffix}`
          const handle = await OwnFiles.openNewLog(name).catch((thrown: unknown) => {
            // The directory may have been deleted (prune --cache). The next file creates it again.
            prepared = undefined
            throw thrown
          })
          return draftOf({ handle, draft: name, name: nameOf(file), drafts, wrote })
        },
        () => "not kept"
      ).pipe(Effect.orElseSucceed(() => undefined)),
    remove: (file) => Effect.promise(() => fs.rm(nameOf(file), { force: true }).catch(() => undefined))
  }
}

/** The package as a part of a file's name. */
const packageOf = (registry: Registry, name: string): string =>
  createHash("sha256").update(`${registry}:${name}`).digest("hex").slice(0, 32)

const draftOf = ({
  draft,
  drafts,
  handle,
  name,
  wrote
}: {
  readonly handle: fs.FileHandle
  readonly draft: string
  readonly name: string
  /** Bytes of all drafts of this cache. */
  readonly drafts: { bytes: number; readonly bytesMax: number }
  readonly wrote: (bytes: number) => void
}): Draft => {
  let bytes = 0
  let isUsable = true
  const end = () => {
    isUsable = false
    drafts.bytes -= bytes
  }
  const drop = async () => {
    if (!isUsable) return
    end()
    await handle.close().catch(() => undefined)
    await fs.rm(draft, { force: true }).catch(() => undefined)
  }
  return {
    write: async (piece) => {
      if (!isUsable) return
      bytes += piece.byteLength
      drafts.bytes += piece.byteLength
      // A client that reads slowly keeps its draft for a long time.
      if (drafts.bytes > drafts.bytesMax) return drop()
      // A full disk must not end an installation.
      await handle.appendFile(piece).catch(drop)
    },
    commit: async () => {
      if (!isUsable) return
      end()
      try {
        await handle.close()
        await OwnFiles.move(draft, name)
        wrote(bytes)
      } catch {
        await fs.rm(draft, { force: true }).catch(() => undefined)
      }
    },
    drop
  }
}

const pieces = async function* (handle: fs.FileHandle): AsyncGenerator<Uint8Array> {
  const size = 64 * 1024
  for (;;) {
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(size), 0, size)
    if (bytesRead === 0) return
    yield buffer.subarray(0, bytesRead)
  }
}

/** Removes the longest unused files until the rest fits, and drafts of dead writers. */
const sweep = async (directory: string, bytesMax: number): Promise<void> => {
  const now = Date.now()
  const found: Array<{ readonly name: string; readonly bytes: number; readonly usedMillis: number }> = []
  for (const entry of await fs.readdir(directory)) {
    const name = path.join(directory, entry)
    const stats = await fs.lstat(name).catch(() => undefined)
    if (stats === undefined || !stats.isFile()) continue
    if (entry.endsWith(draftSuffix)) {
      if (now - stats.mtimeMs > draftMillisMax) await fs.rm(name, { force: true })
      continue
    }
    found.push({ name, bytes: stats.size, usedMillis: stats.mtimeMs })
  }
  let bytes = found.reduce((sum, file) => sum + file.bytes, 0)
  if (bytes <= bytesMax) return
  for (const file of found.toSorted((one, other) => one.usedMillis - other.usedMillis)) {
    if (bytes <= bytesMax * keptPart) return
    await fs.rm(file.name, { force: true })
    bytes -= file.bytes
  }
}
