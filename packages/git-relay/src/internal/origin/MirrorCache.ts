/**
 * Cache of fetched objects: a bare repository on the host for each origin, branch and depth.
 *
 * The origin is contacted every time with the run's own credential, so a caller without access gets nothing from the
 * cache. One process at a time works on a mirror; a run that cannot lock it in time fetches without it. When the cache
 * is too large, the least recently used mirrors are evicted. A run keeps the objects that it has taken, because it has
 * its own links to them.
 */
import { isErrno } from "@cogni/sandbox-host-files/Descriptor"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { formatOwner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { Effect, Schedule, Semaphore } from "effect"
import { createHash } from "node:crypto"
import { readdir, readFile, rm, stat, utimes } from "node:fs/promises"
import { join } from "node:path"
import type { ObjectFormat } from "../../Refs.ts"
import * as RemoteOrigin from "./RemoteOrigin.ts"
import { attempt, attemptWhole, removeOwn } from "../git/RelayFiles.ts"
import type { Owners } from "../steps/KeptRuns.ts"
import * as HostRepository from "../git/HostRepository.ts"

interface MirrorCacheOptions {
  readonly directory: string
  /** Maximum size in bytes (default 4 GiB). */
  readonly bytesMax?: number | undefined
  readonly owners: Owners
}

export type MirrorCache = Effect.Success<ReturnType<typeof make>>

const bytesMaxDefault = 4096 * 1024 * 1024

/** Maximum packs of a mirror. With more, a new fetch is cheaper than copying them all into every workspace. */
const packsMax = 12

/** Milliseconds after which a lock expires if its owner is not visible from here (another boot, another machine). */
const lockForeignMillisMax = 3_600_000

/** Milliseconds after which a lock without an owner expires. A process writes its owner when it creates a lock. */
const lockUnsignedMillisMax = 5000

/** Seconds that a run waits for another run that fetches the same. */
const lockSecondsMax = 60

export const make = Effect.fnUntraced(function* (options: MirrorCacheOptions) {
  const { bytesMax = bytesMaxDefault, directory: root } = options
  const here = yield* Semaphore.make(1)

  /**
   * Fetches into a mirror, which does not change until the scope closes. Returns `undefined` if it cannot be locked in
   * time.
   */
  const fetched = Effect.fnUntraced(function* (
    origin: RemoteOrigin.OriginOptions,
    what: { readonly source: string; readonly depth: number; readonly objectFormat: ObjectFormat }
  ) {
    const name = createHash("sha256")
      .update(JSON.stringify([origin.url, what.source, what.depth, what.objectFormat]))
      .digest("hex")
      .slice(0, 32)
    const directory = join(root, name)
    const mirror = join(directory, "mirror.git")
    yield* attempt(directory, () => OwnFiles.makeDirectory(directory))
    if (!(yield* locked(options, join(directory, "lock")))) return undefined
    const fresh = Effect.andThen(removeOwn(mirror), HostRepository.initBare(mirror, what.objectFormat))
    const packs = yield* attempt(mirror, () => HostRepository.packsOf(mirror))
    const isWorn = packs.filter((name) => name.endsWith(".pack")).length > packsMax
    if (isWorn || !(yield* attempt(mirror, () => exists(join(mirror, "HEAD"))))) yield* fresh
    const into = HostRepository.refs.base
    const fetch = RemoteOrigin.fetch(origin, {
      gitDirectory: mirror,
      source: what.source,
      depth: what.depth,
      into
    })
    yield* fetch.pipe(
      // A mirror that is corrupt or too large is not the fault of the origin, so try again with a new one.
      Effect.catchIf(
        (error) =>
          error._tag === "OriginUnavailable" && (error.fault === "other" || error.fault === "unsupported"),
        () => Effect.andThen(fresh, fetch)
      )
    )
    yield* attempt(directory, () => utimes(directory, new Date(), new Date()))
    yield* Effect.ignore(here.withPermits(1)(attemptWhole(root, () => evict(root, name, bytesMax))))
    return mirror
  })
  return { fetched }
})

/** Removes all mirrors, except those that a process is using. Returns their paths. */
export const empty = ({
  directory: root,
  dryRun = false,
  owners
}: Pick<MirrorCacheOptions, "directory" | "owners"> & { readonly dryRun?: boolean | undefined }) =>
  attempt(root, async () => {
    const names = await readdir(root).catch((thrown: unknown) => {
      if (isErrno(thrown, "ENOENT")) return []
      throw thrown
    })
    const removed: Array<string> = []
    for (const name of names) {
      const directory = join(root, name)
      const lock = join(directory, "lock")
      const made = (await stat(lock).catch(() => undefined))?.mtimeMs
      const text = await readFile(lock, "utf8").catch(() => "")
      if (made !== undefined && !isLeft(owners, text, Date.now() - made)) continue
      if (!dryRun) await rm(directory, { recursive: true, force: true })
      removed.push(directory)
    }
    return removed
  })

const exists = (path: string) =>
  stat(path).then(
    () => true,
    () => false
  )

/**
 * Takes a lock file, which only one process can create. The lock of a dead process is moved away, which also only one
 * process can do.
 */
const locked = ({ owners }: MirrorCacheOptions, path: string) => {
  let taken = false
  const seize = attempt(path, async () => {
    try {
      await OwnFiles.create(path, formatOwner(owners.self()))
      taken = true
    } catch (thrown) {
      if (!isErrno(thrown, "EEXIST")) throw thrown
      const text = await readFile(path, "utf8").catch(() => "")
      const made = (await stat(path).catch(() => undefined))?.mtimeMs ?? Number.POSITIVE_INFINITY
      if (isLeft(owners, text, Date.now() - made)) await setAside(path, text)
    }
    return taken
  })
  return Effect.addFinalizer(() =>
    taken ? Effect.ignore(attempt(path, () => rm(path, { force: true }))) : Effect.void
  ).pipe(
    Effect.andThen(
      // Only the waiting can be interrupted, so that a lock that was taken is always recorded.
      Effect.uninterruptible(seize).pipe(
        Effect.repeat({
          schedule: Schedule.spaced("50 millis"),
          while: (done) => !done,
          times: lockSecondsMax * 20
        })
      )
    )
  )
}

const isLeft = (owners: Owners, text: string, ageMillis: number): boolean => {
  const owner = parseOwner(text)
  if (owner === undefined) return ageMillis > lockUnsignedMillisMax
  const seen = owners.liveness(owner)
  return seen === "dead" || (seen === "unknown" && ageMillis > lockForeignMillisMax)
}

/** Removes the lock of a dead process. If another process has taken the lock in the meantime, it is put back. */
const setAside = async (path: string, text: string): Promise<void> => {
  const aside = `${path}.${crypto.randomUUID()}`
  try {
    await OwnFiles.move(path, aside)
  } catch {
    return
  }
  if ((await readFile(aside, "utf8")) !== text) await OwnFiles.link(aside, path).catch(() => undefined)
  await rm(aside, { force: true })
}

/** Removes the least recently used mirrors first, but never the one in use or one that another process has locked. */
const evict = async (root: string, inUse: string, bytesMax: number): Promise<void> => {
  const names = await readdir(root)
  const mirrors = await Promise.all(
    names.map(async (name) => ({
      name,
      bytes: await HostRepository.packedBytes(join(root, name, "mirror.git")),
      usedAt: (await stat(join(root, name)).catch(() => undefined))?.mtimeMs ?? 0
    }))
  )
  let total = mirrors.reduce((sum, { bytes }) => sum + bytes, 0)
  for (const { bytes, name } of mirrors.toSorted((a, b) => a.usedAt - b.usedAt)) {
    if (total <= bytesMax) return
    if (name === inUse || (await exists(join(root, name, "lock")))) continue
    await rm(join(root, name), { recursive: true, force: true })
    total -= bytes
  }
}
