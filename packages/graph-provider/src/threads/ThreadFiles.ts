/**
 * Port for the directories of threads: one for each set of files, with its agents' sessions.
 *
 * Their content is of an agent. No implementation reads it: it is only mounted, measured and removed as a whole.
 */
import type { WorkspaceSource } from "@cogni/sandbox-core/SpecFields"
import { Context, Effect, Layer } from "effect"
import { ThreadFilesFailed } from "./ThreadError.ts"
import type { FilesName, ThreadKey } from "./Thread.ts"

export class ThreadFiles extends Context.Service<
  ThreadFiles,
  {
    /** Name of this host, as threads record it. */
    readonly host: string
    readonly exists: (name: FilesName) => Effect.Effect<boolean, ThreadFilesFailed>
    /** The workspace of a thread's files, whether it exists or not. */
    readonly workspaceOf: (name: FilesName) => WorkspaceSource
    /** Creates it if it does not exist. */
    readonly acquire: (name: FilesName) => Effect.Effect<void, ThreadFilesFailed>
    /** Bytes on disk of everything in it; 0 if it does not exist. */
    readonly bytesOf: (name: FilesName) => Effect.Effect<number, ThreadFilesFailed>
    /** Removes it. Has no effect if it does not exist. */
    readonly remove: (name: FilesName) => Effect.Effect<void, ThreadFilesFailed>
    /** All that exist on this host. */
    readonly list: Effect.Effect<ReadonlyArray<FilesName>, ThreadFilesFailed>
  }
>()("@cogni/sandbox-graph-provider/ThreadFiles") {}

/** Directories that do not exist on any disk. For tests: `lose` removes those of a thread as a broken disk does. */
export const makeMemory = (host = "here") => {
  const sizes = new Map<FilesName, number>()
  const broken = new Set<string>()
  const ofThread = (key: ThreadKey) => [...sizes.keys()].filter((name) => name.startsWith(key))
  const usable = (name: FilesName) =>
    broken.has(name.slice(0, 32))
      ? Effect.fail(new ThreadFilesFailed({ detail: "the disk is broken. Replace it" }))
      : Effect.void
  return {
    lose: (key: ThreadKey) => ofThread(key).forEach((name) => sizes.delete(name)),
    break: (key: ThreadKey) => void broken.add(key),
    fill: (key: ThreadKey, bytes: number) => ofThread(key).forEach((name) => sizes.set(name, bytes)),
    /** Sizes of all directories of a thread. */
    sizesOf: (key: ThreadKey) => ofThread(key).map((name) => sizes.get(name) ?? 0),
    service: ThreadFiles.of({
      host,
      exists: (name) => Effect.as(usable(name), sizes.has(name)),
      workspaceOf: (name) => ({ type: "directory", path: `/threads/${name}`, counts: "all" }),
      acquire: (name) => Effect.map(usable(name), () => void sizes.set(name, sizes.get(name) ?? 0)),
      bytesOf: (name) => Effect.map(usable(name), () => sizes.get(name) ?? 0),
      remove: (name) => Effect.map(usable(name), () => void sizes.delete(name)),
      list: Effect.sync(() => [...sizes.keys()])
    })
  }
}

export const layerMemory: Layer.Layer<ThreadFiles> = Layer.sync(ThreadFiles, () => makeMemory().service)
