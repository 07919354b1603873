/** Measures the size of a workspace, and how reliable the result is while an agent works in it. */
import type { WorkspaceRequest } from "@cogni/sandbox-core/Workspace"
import * as Descriptor from "@cogni/sandbox-host-files/Descriptor"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect, Fiber } from "effect"
import type { Stats } from "node:fs"
import { lstat, opendir } from "node:fs/promises"
import { join } from "node:path"
import { type DiskLooks, inodeBytes } from "./DiskLooks.ts"
import { attempt, refused } from "./WorkspaceRefusal.ts"

/** Maximum number of files in a workspace. One with more cannot be measured, and ends its run. */
export const entriesMax = 1_000_000

/** Maximum depth of directories in a workspace: one descriptor is held for each level. */
export const levelsMax = 512

/** Largest change of a disk that calls for no new count, as a share of what may still be added to a workspace. */
const unchangedShareMax = 1 / 8

/** Maximum number of concurrent `lstat` calls. */
const looksMax = 32

/**
 * Starts measuring a workspace. An agent can hide files from a running count by moving them to directories that were
 * already counted, but it cannot hide disk usage. Once the disk's usage has grown by as much as the run may still add,
 * whichever process caused it, only a count at rest is certain.
 */
export const make = Effect.fnUntraced(function* (
  { access, identity, path }: Pick<HeldDirectory, "access" | "identity" | "path">,
  { source, workspaceBytesMax }: Pick<WorkspaceRequest, "source" | "workspaceBytesMax">,
  { disks, knownBytes }: { readonly disks: DiskLooks; readonly knownBytes?: number | undefined }
) {
  const measured = now({ access, path })
  // A directory of a user may have a quota of its own. Then the disk says only how much of that is used.
  const place = disks.placeOf(source.type === "temporary" ? identity.device : undefined)
  const used = Effect.map(disks.look(place, { access, path }), ({ usedBytes }) => usedBytes)
  // In the background, because measuring a large workspace takes long and must not delay the agent.
  const before =
    source.type === "temporary"
      ? Effect.succeed(knownBytes ?? (yield* measured))
      : Fiber.join(yield* Effect.forkScoped(measured, { startImmediately: true }))
  const usedBefore = yield* used
  /** The bytes that existed before and do not count, and those that do. */
  const start = Effect.map(before, (bytes) => {
    const countsAll = source.type === "directory" && source.counts === "all"
    const forgiven = countsAll ? Math.max(0, bytes - workspaceBytesMax) : bytes
    return { forgiven, certain: { bytes: bytes - forgiven, usedBytes: usedBefore } }
  })
  const countedNow = Effect.flatMap(start, ({ forgiven }) =>
    Effect.map(measured, (bytes) => Math.max(0, bytes - forgiven))
  )
  let bound: ReturnType<typeof boundOf> | undefined
  let last: { readonly usedBytes: number; readonly toleratedBytes: number } | undefined
  const note = (bytes: number, usedBytes: number) => {
    last = { usedBytes, toleratedBytes: Math.max(0, workspaceBytesMax - bytes) * unchangedShareMax }
  }
  // Nothing has been added to it.
  if (source.type === "temporary") note(0, usedBefore)
  return {
    /**
     * Every byte that is written to a workspace is one more that its disk uses, unless others remove as many, or the
     * file system says it late.
     */
    changed: disks.changed(
      place,
      { access, path },
      (now) =>
        now?.isPrompt !== true ||
        last === undefined ||
        Math.abs(now.usedBytes - last.usedBytes) > last.toleratedBytes
    ),
    countedBytes: Effect.gen(function* () {
      // Before the count, so that a change during it is noticed.
      const usedAtCount = yield* used
      const bytes = yield* countedNow
      note(bytes, usedAtCount)
      bound ??= boundOf((yield* start).certain)
      const possible = bound(yield* used)
      return { bytes, isCertain: bytes > workspaceBytesMax || possible <= workspaceBytesMax }
    }),
    countedBytesAtRest: Effect.gen(function* () {
      const usedBytes = yield* used
      const bytes = yield* countedNow
      bound = boundOf({ bytes, usedBytes })
      note(bytes, usedBytes)
      return bytes
    })
  }
})

/**
 * Returns the most bytes that a workspace can hold, from how its disk's usage has grown since a certain count. It does
 * not allow more because others remove files meanwhile, such as the workspace of an ended run.
 */
export const boundOf = ({ bytes, usedBytes }: { readonly bytes: number; readonly usedBytes: number }) => {
  let least = usedBytes
  return (usedNow: number): number => {
    least = Math.min(least, usedNow)
    return bytes + usedNow - least
  }
}

/** Measures a directory whose entries are known and are empty directories. */
export const ofKnown = async (path: string, names: ReadonlyArray<string>): Promise<number> => {
  const [own, ...inner] = await Promise.all(
    [path, ...names.map((name) => join(path, name))].map((place) => lstat(place))
  )
  return inner.reduce((bytes, { blocks }) => bytes + blocks * 512 + inodeBytes, own!.blocks * 512)
}

/** Measures a directory that nothing changes, so that a run need not do it. */
export const now = ({ access, path }: Pick<HeldDirectory, "access" | "path">) =>
  attempt(path, (signal) => measure(access, signal))

/**
 * Returns the bytes on disk of a directory and everything below it. The directory itself grows with its names, and each
 * entry takes an inode. Fails on anything that cannot be measured, because no limit could be enforced on it.
 *
 * Each directory is held open while it and those below it are listed, and names are resolved relative to it. If an
 * agent replaces a directory with a link to one of the host, the link is counted and not followed.
 *
 * A name is bytes that need not be UTF-8 text. Latin-1 preserves each byte. Otherwise a name could not be found again,
 * and its file would count as deleted.
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
        `contains directories nested more than ${levelsMax} levels deep, so its size cannot be measured`,
        "Use a part of it as the workspace, or have the agent nest directories less deeply"
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
          `contains more than ${entriesMax} files, so its size cannot be measured`,
          "Use a smaller part of it as the workspace, or have the agent create fewer files"
        )
      const inner = `${access}/${entry.name}`
      if (entry.isDirectory()) directories.push(inner)
      else if (waiting.push(inner) === looksMax) await lookAll()
    }
    await lookAll()
    for (const inner of directories) {
      // After an abort, the descriptor number in the path may have been reused.
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

  // `/.` resolves to the held directory instead of the link in /proc.
  await enter(`${Buffer.from(path).toString("latin1")}/.`, 0)
  return bytes - inodeBytes
}

/** Opens a path without following a link at its end. Uses the path itself on systems without descriptors (macOS). */
const hold = async (path: string) => {
  if (!Descriptor.isSupported())
    return { access: path, stats: await lstat(toPath(path)), close: () => Promise.resolve() }
  const { handle, stats } = await Descriptor.peek(toPath(path))
  return { access: Descriptor.self(handle), stats, close: () => handle.close() }
}

const toPath = (latin1: string): Buffer => Buffer.from(latin1, "latin1")

/** Ignores an entry that was deleted after the listing. Any other error could hide files, and fails the measurement. */
const vanished = (thrown: NodeJS.ErrnoException): undefined => {
  if (thrown.code === "ENOENT") return undefined
  throw refused(
    `contains a file or directory that cannot be measured (${thrown.code})`,
    "Look for directories that are nested too deeply or not readable for their owner"
  )
}
