/**
 * How much a workspace holds, and how certain that is while somebody works in it.
 */
import type { WorkspaceRequest } from "@cogni/sandbox-core/Workspace"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect, Fiber } from "effect"
import { lstat, opendir, stat, statfs } from "node:fs/promises"
import { attempt, Refused } from "./WorkspaceRefusal.ts"

/** A workspace with more files than this cannot be watched, and ends its run. */
export const entriesMax = 1_000_000

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
 * Bytes on disk of a directory and of all below it, never following a link. The directory itself grows with its names,
 * and each entry takes an inode. What cannot be measured cannot be held to a limit.
 *
 * A name is bytes, which need not be text: as Latin-1 each of them is kept. What cannot be found by its name again
 * would look like something that has gone meanwhile.
 */
const measure = async (path: string, signal: AbortSignal): Promise<number> => {
  let bytes = (await stat(path)).blocks * 512
  let entries = 0
  const pending = [Buffer.from(path).toString("latin1")]
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    const listing = await opendir(Buffer.from(directory, "latin1"), { encoding: "latin1" }).catch(vanished)
    if (listing === undefined) continue
    // The descriptor in the path may be another's once nobody waits for this.
    signal.throwIfAborted()
    for await (const entry of listing) {
      if (++entries > entriesMax) {
        throw new Refused(
          `holds more than ${entriesMax} files, so that its size cannot be watched`,
          "Give the run a smaller part of it, or have the agent make fewer files"
        )
      }
      const inner = `${directory}/${entry.name}`
      const found = await lstat(Buffer.from(inner, "latin1")).catch(vanished)
      if (found !== undefined) bytes += found.blocks * 512 + inodeBytes
      if (found?.isDirectory() === true) pending.push(inner)
    }
  }
  return bytes
}

/** What is used of the disk that it lies on, whoever has written it. A file system without a fixed number of inodes says 0. */
const usedBytes = async (path: string): Promise<number> => {
  const { bfree, blocks, bsize, ffree, files } = await statfs(path)
  return (blocks - bfree) * bsize + Math.max(0, files - ffree) * inodeBytes
}

/** What is gone between the listing and the look is no longer there to count; anything else was made to hide. */
const vanished = (thrown: NodeJS.ErrnoException): undefined => {
  if (thrown.code === "ENOENT") return undefined
  throw new Refused(
    `holds something that cannot be measured (${thrown.code})`,
    "Look for directories that are nested too deeply or closed to their owner"
  )
}
