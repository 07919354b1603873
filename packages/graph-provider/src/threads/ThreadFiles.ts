/**
 * Port for the directories of threads: one for each, with its files and its agents' sessions.
 *
 * Their content is of an agent. No implementation reads it: it is only mounted, measured and removed as a whole.
 */
import type { WorkspaceSource } from "@cogni/sandbox-core/SandboxSpec"
import { Context, Effect, Layer } from "effect"
import { ThreadFilesFailed } from "./ThreadError.ts"
import type { ThreadKey } from "./Thread.ts"

export class ThreadFiles extends Context.Service<
  ThreadFiles,
  {
    /** Name of this host, as threads record it. */
    readonly host: string
    readonly exists: (key: ThreadKey) => Effect.Effect<boolean, ThreadFilesFailed>
    /** The workspace of a thread, whether it exists or not. */
    readonly workspaceOf: (key: ThreadKey) => WorkspaceSource
    /** Creates it if it does not exist. */
    readonly acquire: (key: ThreadKey) => Effect.Effect<void, ThreadFilesFailed>
    /** Bytes on disk of everything in it; 0 if it does not exist. */
    readonly bytesOf: (key: ThreadKey) => Effect.Effect<number, ThreadFilesFailed>
    /** Removes it. Has no effect if it does not exist. */
    readonly remove: (key: ThreadKey) => Effect.Effect<void, ThreadFilesFailed>
  }
>()("@cogni/sandbox-graph-provider/ThreadFiles") {}

/** Directories that do not exist on any disk. For tests: `lose` removes one as a broken disk does. */
export const makeMemory = (host = "here") => {
  const sizes = new Map<ThreadKey, number>()
  const broken = new Set<ThreadKey>()
  const usable = (key: ThreadKey) =>
    broken.has(key)
      ? Effect.fail(new ThreadFilesFailed({ detail: "the disk is broken. Replace it" }))
      : Effect.void
  return {
    lose: (key: ThreadKey) => void sizes.delete(key),
    break: (key: ThreadKey) => void broken.add(key),
    fill: (key: ThreadKey, bytes: number) => void sizes.set(key, bytes),
    service: ThreadFiles.of({
      host,
      exists: (key) => Effect.as(usable(key), sizes.has(key)),
      workspaceOf: (key) => ({ type: "directory", path: `/threads/${key}`, counts: "all" }),
      acquire: (key) => Effect.map(usable(key), () => void sizes.set(key, sizes.get(key) ?? 0)),
      bytesOf: (key) => Effect.map(usable(key), () => sizes.get(key) ?? 0),
      remove: (key) => Effect.map(usable(key), () => void sizes.delete(key))
    })
  }
}

export const layerMemory: Layer.Layer<ThreadFiles> = Layer.sync(ThreadFiles, () => makeMemory().service)
