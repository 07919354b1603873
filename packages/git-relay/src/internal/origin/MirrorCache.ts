/**
 * What was fetched once is not fetched again: a bare repository per origin, branch and depth, on the host.
 *
 * The origin is asked every time, with the run's own credential, so that whoever may not read it gets nothing here
 * either. One process at a time works on a mirror; whoever cannot have it in time does without. The oldest go when all
 * of them are larger than the cache may be; what a run has taken from one it keeps, by links of its own.
 */
import { isErrno } from "@cogni/sandbox-host-files/Descriptor"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { formatOwner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { Effect, Schedule, Semaphore } from "effect"
import { createHash } from "node:crypto"
import { mkdir, readdir, readFile, rm, stat, utimes } from "node:fs/promises"
import { join } from "node:path"
import type { ObjectFormat } from "../../Refs.ts"
import * as RemoteOrigin from "./RemoteOrigin.ts"
import { attempt, removeOwn } from "../git/RelayFiles.ts"
import type { Owners } from "../steps/KeptRuns.ts"
import * as HostRepository from "../git/HostRepository.ts"

export interface MirrorCacheOptions {
  readonly directory: string
  /** What it may hold (4 GiB). */
  readonly bytesMax?: number | undefined
  readonly owners: Owners
}

export type MirrorCache = Effect.Success<ReturnType<typeof make>>

const bytesMaxDefault = 4096 * 1024 * 1024

/** More packs than this, and it is cheaper to fetch anew than to copy them all into every workspace. */
const packsMax = 12

/** A lock whose owner cannot be seen from here (another boot, another machine) is over by then. */
const lockForeignMillisMax = 3_600_000

/** Who makes a lock, also writes who it is: one that says nothing by then never will. */
const lockUnsignedMillisMax = 5000

/** How long a run waits for another that is fetching the same. */
const lockSecondsMax = 60

export const make = Effect.fnUntraced(function* (options: MirrorCacheOptions) {
  const { bytesMax = bytesMaxDefault, directory: root } = options
  const here = yield* Semaphore.make(1)

  /** It, fetched, in a repository that stays as it is until the scope closes; `undefined` where it cannot be had. */
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
    yield* attempt(directory, () => mkdir(directory, { recursive: true, mode: 0o700 }))
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
      // What is broken on this disk, or has grown too large here, is no fault of the origin's: once more, from nothing.
      Effect.catchIf(
        (error) =>
          error._tag === "OriginUnavailable" && (error.fault === "other" || error.fault === "unsupported"),
        () => Effect.andThen(fresh, fetch)
      )
    )
    yield* attempt(directory, () => utimes(directory, new Date(), new Date()))
    yield* Effect.ignore(here.withPermits(1)(attempt(root, () => evict(root, name, bytesMax))))
    return mirror
  })
  return { fetched }
})

const exists = (path: string) =>
  stat(path).then(
    () => true,
    () => false
  )

/** A file that only one process can make. That of a dead one is moved away, which only one process can do either. */
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
      // A lock that is taken is known to be: only the waiting can be interrupted.
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

/** The lock of a dead process, and no other: what somebody has taken in the meantime is put back. */
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

/** The longest unused first; never the one in use, nor one that somebody else has locked. */
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
