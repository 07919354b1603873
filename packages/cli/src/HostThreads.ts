/** Remembered threads: their records in the run database, their files in the state directory of this host. */
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { ThreadFilesFailed } from "@cogni/sandbox-graph-provider/threads/ThreadError"
import { ThreadFiles } from "@cogni/sandbox-graph-provider/threads/ThreadFiles"
import { ThreadKey } from "@cogni/sandbox-graph-provider/threads/Thread"
import * as Threads from "@cogni/sandbox-graph-provider/threads/Threads"
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as KeptDirectory from "@cogni/sandbox-host-files/KeptDirectory"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as SqlThreadStore from "@cogni/sandbox-sql/SqlThreadStore"
import { Effect, Layer, Schema } from "effect"
import { basename, join } from "node:path"
import type { Refusal } from "./Failure.ts"
import * as Records from "./Records.ts"
import type { Settings } from "./Settings.ts"

type Place = Pick<Settings["Service"], "stateDirectory">

const pathOf = ({ stateDirectory }: Place, key: string): string =>
  join(StateDirectory.paths(stateDirectory).threads, key)

/** Whether a path is the directory of some thread. */
export const isThread =
  (settings: Place) =>
  (path: string): boolean =>
    Schema.is(ThreadKey)(basename(path)) && path === pathOf(settings, basename(path))

const failed = (path: string) => (error: unknown) =>
  new ThreadFilesFailed({
    detail:
      `the directory of a thread (${path}) cannot be used: ` +
      `${error instanceof Error ? error.message.replace(/\.$/u, "") : "unknown error"}. ` +
      "Check COGNI_STATE_DIR, its disk and its permissions"
  })

/** The directories of threads. Their content is only mounted, measured and removed as a whole. */
export const files = (settings: Place): ThreadFiles["Service"] => {
  const at = <A>(key: ThreadKey, work: (path: string) => Promise<A>) =>
    Effect.suspend(() => {
      const path = pathOf(settings, key)
      return attempt(
        () => work(path),
        (_message, thrown) => failed(path)(thrown)
      )
    })
  const exists = (key: ThreadKey) => at(key, KeptDirectory.exists)
  return ThreadFiles.of({
    host: HostOwner.machineName(),
    exists,
    workspaceOf: (key) => ({ type: "directory", path: pathOf(settings, key), counts: "all" }),
    acquire: (key) => at(key, (path) => KeptDirectory.acquire(path)),
    bytesOf: (key) =>
      Effect.flatMap(exists(key), (found) =>
        found
          ? Effect.mapError(HostWorkspace.bytesOf(pathOf(settings, key)), failed(pathOf(settings, key)))
          : Effect.succeed(0)
      ),
    remove: (key) => Effect.mapError(HostTree.remove(pathOf(settings, key)), failed(pathOf(settings, key)))
  })
}

export const layer = (
  settings: Pick<Settings["Service"], "database" | "stateDirectory" | "threads">
): Layer.Layer<never, Refusal> =>
  Records.inDatabase(
    settings,
    Threads.layer(settings.threads).pipe(
      Layer.provide(SqlThreadStore.layer),
      Layer.provide(Layer.sync(ThreadFiles, () => files(settings)))
    ),
    "threads cannot be looked up"
  )
