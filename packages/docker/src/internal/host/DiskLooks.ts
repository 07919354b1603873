/**
 * Looks at the disks of workspaces while runs wait for a change of them: once a second, for all workspaces on a disk.
 * Runs that wait cost no timer and no fiber of their own.
 */
import * as MonotonicTime from "@cogni/sandbox-core/MonotonicTime"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import { Duration, Effect, Queue, type Scope } from "effect"
import { statfs } from "node:fs/promises"
import { attempt } from "./WorkspaceRefusal.ts"

/** Pause between two looks at a disk that workspaces wait for. */
export const lookSeconds = 1

/**
 * Workspaces that are woken at the same moment, and the pause until the next ones: 256 in a second. Each is counted
 * when it is woken. If all were counted at once, each count would take as long as all of them, and a run is not
 * counted again until a multiple of that time has passed.
 */
const wakesAtOnce = 16
const wakePauseSeconds = 1 / 16

/** How long what a disk uses is known, in milliseconds, if only a change of it is looked for. */
const freshMillisMax = 500

/**
 * Bytes counted for the inode of a file, directory or link, besides its blocks: 256 bytes on ext4 and 512 on XFS. Empty
 * files have no blocks, but a disk without free inodes is full too.
 */
export const inodeBytes = 512

/** The magic numbers of ext2 to ext4, XFS and tmpfs, which say at once what a write uses. btrfs says it 30 s later. */
const promptTypes: ReadonlySet<number> = new Set([0xef53, 0x58465342, 0x01021994])

export interface Disk {
  /** Also by other processes. */
  readonly usedBytes: number
  /** Whether the used bytes change as soon as anything is written. */
  readonly isPrompt: boolean
}

type Held = Pick<HeldDirectory, "access" | "path">

/** Whether a workspace may have changed, by a look at its disk. `undefined`: the look failed. */
type MayHaveChanged = (disk: Disk | undefined) => boolean

/** A workspace that waits for a change. */
interface Waiting {
  readonly held: Held
  readonly mayHaveChanged: MayHaveChanged
  readonly wake: () => void
}

/** A disk, and the workspaces that wait for a change of it. */
export interface Place {
  known: (Disk & { readonly atMillis: number }) | undefined
  isBeingLookedAt: boolean
  readonly waiting: Set<Waiting>
}

export interface DiskLooks {
  /** Returns the place of all temporary workspaces of a device, or one for a single workspace. */
  readonly placeOf: (device: bigint | undefined) => Place
  /** Looks at the disk of a workspace now. */
  readonly look: (place: Place, held: Held) => ReturnType<typeof attempt<Disk>>
  /** Settles when a workspace may have changed. A disk that was looked at just now is not looked at again. */
  readonly changed: (place: Place, held: Held, mayHaveChanged: MayHaveChanged) => Effect.Effect<void>
}

export const make: Effect.Effect<DiskLooks, never, Scope.Scope> = Effect.gen(function* () {
  const devices = new Map<bigint, Place>()
  const inUse = new Set<Place>()
  const wake = yield* Queue.sliding<void>(1)

  const look: DiskLooks["look"] = Effect.fnUntraced(function* (place, { access, path }) {
    const disk = yield* attempt(path, () => diskOf(access))
    place.known = { ...disk, atMillis: yield* MonotonicTime.nowMillis }
    return disk
  })

  const lately = Effect.fnUntraced(function* (place: Place, held: Held) {
    const known = place.known
    const isFresh = known !== undefined && (yield* MonotonicTime.nowMillis) - known.atMillis < freshMillisMax
    return isFresh ? known : yield* Effect.orElseSucceed(look(place, held), () => undefined)
  })

  /** Wakes the workspaces of a place that may have changed. A failed look says something only of its own workspace. */
  const lookFor = Effect.fnUntraced(function* (place: Place) {
    const [first] = place.waiting
    if (first === undefined) return
    const disk = yield* lately(place, first.held)
    if (disk === undefined) return first.wake()
    const woken = [...place.waiting].filter(({ mayHaveChanged }) => mayHaveChanged(disk))
    for (const [index, one] of woken.entries()) {
      if (index > 0 && index % wakesAtOnce === 0) yield* Effect.sleep(Duration.seconds(wakePauseSeconds))
      one.wake()
    }
  })

  // A look may hang, as on a network file system whose server is gone. It must not delay those at other disks.
  yield* Effect.gen(function* () {
    yield* inUse.size === 0 ? Queue.take(wake) : Effect.sleep(Duration.seconds(lookSeconds))
    for (const place of inUse) {
      if (place.isBeingLookedAt) continue
      place.isBeingLookedAt = true
      const ended = Effect.sync(() => (place.isBeingLookedAt = false))
      yield* Effect.forkScoped(Effect.ensuring(lookFor(place), ended))
    }
  }).pipe(Effect.forever, Effect.forkScoped)

  const wait = (place: Place, held: Held, mayHaveChanged: MayHaveChanged) =>
    Effect.callback<void>((resume) => {
      const end = () => {
        place.waiting.delete(one)
        if (place.waiting.size === 0) inUse.delete(place)
      }
      const one: Waiting = {
        held,
        mayHaveChanged,
        wake: () => {
          end()
          resume(Effect.void)
        }
      }
      place.waiting.add(one)
      inUse.add(place)
      Queue.offerUnsafe(wake, undefined)
      return Effect.sync(end)
    })

  return {
    placeOf: (device) => {
      const known = device === undefined ? undefined : devices.get(device)
      const place: Place = known ?? { known: undefined, isBeingLookedAt: false, waiting: new Set() }
      if (device !== undefined) devices.set(device, place)
      return place
    },
    look,
    changed: (place, held, mayHaveChanged) =>
      Effect.flatMap(lately(place, held), (disk) =>
        mayHaveChanged(disk) ? Effect.void : wait(place, held, mayHaveChanged)
      )
  }
})

/** File systems without a fixed number of inodes report 0 inodes. */
const diskOf = async (path: string): Promise<Disk> => {
  const { bfree, blocks, bsize, ffree, files, type } = await statfs(path)
  return {
    usedBytes: (blocks - bfree) * bsize + Math.max(0, files - ffree) * inodeBytes,
    isPrompt: promptTypes.has(type)
  }
}
