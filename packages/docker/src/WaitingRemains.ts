/**
 * Directories of sandboxes that waited for a run, whose host process has died: inputs and files of its runs may be in
 * them. Removed at the start of every process that runs sandboxes, by `prune`, and before new ones are made. An nginx
 * for many runs has such a directory too.
 */
import type { HostFailed } from "@cogni/sandbox-core/SandboxReason"
import { formatOwner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect, type Scope } from "effect"
import { lstat, mkdir, readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import * as HostOwner from "./HostOwner.ts"
import { attemptOwn } from "./internal/host/WorkspaceRefusal.ts"
import * as ReapMetrics from "./internal/ReapMetrics.ts"

/**
 * Age in seconds at which directories of an unknown owner are removed. No sandbox waits for longer than a day. An nginx
 * for many runs lives for up to 30 days.
 */
const unknownSecondsMax = { waiting: 100_000, proxies: 31 * 24 * 3600 } as const

/** Use of directories: by sandboxes that wait, or by an nginx for many runs. */
export type Kind = keyof typeof unknownSecondsMax

/** The names of all directories that waiting sandboxes have. Whatever has another name belongs to someone else. */
const ownName = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u

/** Returns the paths of the directories that `reap` would remove. */
export const orphans = (directory: string, kind: Kind = "waiting"): Effect.Effect<ReadonlyArray<string>> =>
  Effect.promise(async () => {
    // Nothing is removed through a link, or for another user.
    if ((await ownDirectory(directory)) === undefined) return []
    const names = await readdir(directory).catch((): Array<string> => [])
    const paths = names.filter((name) => ownName.test(name)).map((name) => join(directory, name))
    const orphaned = await Promise.all(paths.map((path) => isOrphaned(path, unknownSecondsMax[kind])))
    return paths.filter((_, index) => orphaned[index])
  })

/** Removes the directories of dead processes. Those that cannot be removed stay until the next time. */
export const reap = (directory: string, kind: Kind = "waiting"): Effect.Effect<void> =>
  Effect.flatMap(orphans(directory, kind), (paths) =>
    Effect.forEach(
      paths,
      (path) =>
        HostTree.remove(path).pipe(
          Effect.matchEffect({
            onSuccess: () => ReapMetrics.found("waiting", "removed"),
            onFailure: ({ message }) =>
              Effect.andThen(ReapMetrics.found("waiting", "failed"), Effect.logWarning(message))
          })
        ),
      { discard: true }
    )
  )

/** Makes a directory of this process. Closing the scope removes it, and `reap` does if the process has died. */
export const acquire = Effect.fnUntraced(function* (
  directory: string,
  kind: Kind = "waiting"
): Effect.fn.Return<string, HostFailed, Scope.Scope> {
  // Before anything in it is removed: it could be a link, or another user's.
  yield* attemptOwn(directory, () => OwnFiles.makePrivateDirectory(directory))
  yield* reap(directory, kind)
  const path = join(directory, crypto.randomUUID())
  const make = attemptOwn(path, async () => {
    await mkdir(path, { mode: 0o700 })
    await OwnFiles.create(join(path, "owner"), formatOwner(HostOwner.self()))
    return path
  })
  return yield* Effect.acquireRelease(make, () => Effect.orDie(HostTree.remove(path)))
})

const ownDirectory = async (path: string) => {
  const found = await lstat(path).catch(() => undefined)
  return found?.isDirectory() === true && found.uid === process.geteuid?.() ? found : undefined
}

const isOrphaned = async (base: string, secondsMax: number): Promise<boolean> => {
  const found = await ownDirectory(base)
  if (found === undefined) return false
  const text = await readFile(join(base, "owner"), "utf8").catch(() => "")
  const owner = parseOwner(text)
  const liveness = owner === undefined ? "unknown" : HostOwner.liveness(owner)
  if (liveness !== "unknown") return liveness === "dead"
  return Date.now() - found.mtimeMs > secondsMax * 1000
}
