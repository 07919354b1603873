/** How much a workspace holds, and how certain that is while somebody works in it. */
import type { WorkspaceRequest } from "@cogni/sandbox-core/Workspace"
import * as Descriptor from "@cogni/sandbox-host-files/Descriptor"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect, Fiber } from "effect"
import type { Stats } from "node:fs"
import { lstat, opendir, statfs } from "node:fs/promises"
import { attempt, refused } from "./WorkspaceRefusal.ts"

/** A workspace with more files than this cannot be watched, and ends its run. */
export const entriesMax = 1_000_000

/** Directories nested more deeply than this cannot be watched either: one descriptor is held for each level. */
export const levelsMax = 512

/** Looks at files that wait for the disk at once. */
const looksMax = 32

/**
 * The cost of the inode of a file, directory or link, besides its blocks: 256 bytes on ext4 and 512 on XFS. Empty files
 * have no blocks, and a disk without free inodes is as full as any.
 */
export const inodeBytes = 512

/**
 * Whoever works in a workspace while it is walked can move files from where nobody has looked yet to where somebody
 * has. They cannot hide that the disk fills: once that has grown by as much as may still come here, whoever else did
 * it, the bytes are only certain when they were counted at rest.
 */
export const make = Effect.fnUntraced(function* (
  { access, path }: Pick<HeldDirectory, "access" | "path">,
  { source, workspaceBytesMax }: Pick<WorkspaceRequest, "source" | "workspaceBytesMax">
) {
  const measured = attempt(path, (signal) => measure(access, signal))
  const used = attempt(path, () => usedBytes(access))
  // A large workspace takes its time, for which no agent waits.
  const before =
    source.type === "temporary"
      ? Effect.succeed(yield* measured)
      : Fiber.join(yield* Effect.forkScoped(measured, { startImmediately: true }))
  const usedBefore = yield* used
  /** What was there and does not count, and what does. */
  const start = Effect.map(before, (bytes) => {
    const countsAll = source.type === "directory" && source.counts === "all"
    const forgiven = countsAll ? Math.max(0, bytes - workspaceBytesMax) : bytes
    return { forgiven, certain: { bytes: bytes - forgiven, usedBytes: usedBefore } }
  })
  const countedNow = Effect.flatMap(start, ({ forgiven }) =>
    Effect.map(measured, (bytes) => Math.max(0, bytes - forgiven))
  )
  let atRest: { readonly bytes: number; readonly usedBytes: number } | undefined
  return {
    countedBytes: Effect.gen(function* () {
      const bytes = yield* countedNow
      const certain = atRest ?? (yield* start).certain
      const possible = certain.bytes + (yield* used) - certain.usedBytes
      return { bytes, isCertain: bytes > workspaceBytesMax || possible <= workspaceBytesMax }
    }),
    countedBytesAtRest: Effect.gen(function* () {
      const usedBytes = yield* used
      const bytes = yield* countedNow
      atRest = { bytes, usedBytes }
      return bytes
    })
  }
})

/**
 * Bytes on disk of a directory and of all below it. The directory itself grows with its names, and each entry takes an
 * inode. What cannot be measured cannot be held to a limit.
 *
 * Each directory is held while it and those below it are listed, and names are looked up in what is held: an agent that
 * exchanges a directory for a link to one of the host has the link counted, and nothing behind it looked at.
 *
 * A name is bytes, which need not be text: as Latin-1 each of them is kept. What cannot be found by its name again
 * would look like something that has gone meanwhile.
 */
const measure = async (path: string, signal: AbortSignal): Promise<number> => {
  let bytes = 0
  let entries = 0
  const count = ({ blocks }: Stats) => {
    bytes += blocks * 512 + inodeBytes
  }

  const list = async (access: string, levels: number): Promise<void> => {
    if (levels > levelsMax)
      throw refused(
        `holds directories that are nested more than ${levelsMax} deep, so that its size cannot be watched`,
        "Give the run a part of it that is not, or have the agent nest directories less deeply"
      )
    const directories: Array<string> = []
    const look = async (inner: string) => {
      const found = await lstat(toPath(inner)).catch(vanished)
      if (found?.isDirectory() === true) directories.push(inner)
      else if (found !== undefined) count(found)
    }
    const waiting: Array<string> = []
    const lookAll = () => Promise.all(waiting.splice(0).map(look))
    const listing = await opendir(toPath(access), { bufferSize: looksMax, encoding: "latin1" }).catch(
      vanished
    )
    for await (const entry of listing ?? []) {
      if (++entries > entriesMax)
        throw refused(
          `holds more than ${entriesMax} files, so that its size cannot be watched`,
          "Give the run a smaller part of it, or have the agent make fewer files"
        )
      const inner = `${access}/${entry.name}`
      if (entry.isDirectory()) directories.push(inner)
      else if (waiting.push(inner) === looksMax) await lookAll()
    }
    await lookAll()
    for (const inner of directories) {
      // The descriptor in the path may be another's once nobody waits for this.
      signal.throwIfAborted()
      await enter(inner, levels + 1)
    }
  }

  const enter = async (path: string, levels: number): Promise<void> => {
    const held = await hold(path).catch(vanished)
    if (held === undefined) return
    try {
      count(held.stats)
      if (held.stats.isDirectory()) await list(held.access, levels)
    } finally {
      await held.close()
    }
  }

  // What the descriptor leads to, not the link that it is in /proc.
  await enter(`${Buffer.from(path).toString("latin1")}/.`, 0)
  return bytes - inodeBytes
}

/** What a path names, itself and not what a link there leads to. By path where the system cannot hold it (macOS). */
const hold = async (path: string) => {
  if (!Descriptor.isSupported())
    return { access: path, stats: await lstat(toPath(path)), close: () => Promise.resolve() }
  const { handle, stats } = await Descriptor.peek(toPath(path))
  return { access: Descriptor.self(handle), stats, close: () => handle.close() }
}

const toPath = (latin1: string): Buffer => Buffer.from(latin1, "latin1")

/** What is used of the disk that it lies on, whoever has written it. A file system without a fixed number of inodes says 0. */
const usedBytes = async (path: string): Promise<number> => {
  const { bfree, blocks, bsize, ffree, files } = await statfs(path)
  return (blocks - bfree) * bsize + Math.max(0, files - ffree) * inodeBytes
}

/** What is gone between the listing and the look is no longer there to count; anything else was made to hide. */
const vanished = (thrown: NodeJS.ErrnoException): undefined => {
  if (thrown.code === "ENOENT") return undefined
  throw refused(
    `holds something that cannot be measured (${thrown.code})`,
    "Look for directories that are nested too deeply or closed to their owner"
  )
}
