/** Remembered threads: their records in the run database, their files in the state directory of this host. */
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import { ThreadFilesFailed } from "@cogni/sandbox-graph-provider/threads/ThreadError"
import { ThreadFiles } from "@cogni/sandbox-graph-provider/threads/ThreadFiles"
import { FilesName } from "@cogni/sandbox-graph-provider/threads/Thread"
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

const pathOf = ({ stateDirectory }: Place, name: string): string =>
  join(StateDirectory.paths(stateDirectory).threads, name)

/** Whether a path is the directory of some thread. */
export const isThread =
  (settings: Place) =>
  (path: string): boolean =>
    Schema.is(FilesName)(basename(path)) && path === pathOf(settings, basename(path))

const failed = (path: string) => (error: unknown) =>
  new ThreadFilesFailed({
    detail:
      `the directory of a thread (${path}) cannot be used: ` +
      `${error instanceof Error ? error.message.replace(/\.$/u, "") : "unknown error"}. ` +
      "Check COGNI_STATE_DIR, its disk and its permissions"
  })

/** The directories of threads. Their content is only mounted, measured and removed as a whole. */
export const files = (settings: Place): ThreadFiles["Service"] => {
  const at = <A>(name: FilesName, work: (path: string) => Promise<A>) =>
    Effect.suspend(() => {
      const path = pathOf(settings, name)
      return attempt(
        () => work(path),
        (_message, thrown) => failed(path)(thrown)
      )
    })
  const exists = (name: FilesName) => at(name, KeptDirectory.exists)
  const all = StateDirectory.paths(settings.stateDirectory).threads
  return ThreadFiles.of({
    host: HostOwner.machineName(),
    exists,
    workspaceOf: (name) => ({ type: "directory", path: pathOf(settings, name), counts: "all" }),
    acquire: (name) => at(name, (path) => KeptDirectory.acquire(path)),
    bytesOf: (name) =>
      Effect.flatMap(exists(name), (found) =>
        found
          ? Effect.mapError(HostWorkspace.bytesOf(pathOf(settings, name)), failed(pathOf(settings, name)))
          : Effect.succeed(0)
      ),
    remove: (name) =>
      Effect.mapError(HostTree.remove(pathOf(settings, name)), failed(pathOf(settings, name))),
    list: attempt(
      () => KeptDirectory.list(all),
      (_message, thrown) => failed(all)(thrown)
    ).pipe(Effect.map((names) => names.filter(Schema.is(FilesName))))
  })
}

export const layer = (
  settings: Pick<Settings["Service"], "database" | "stateDirectory" | "threads">,
  options?: Threads.Options
): Layer.Layer<never, Refusal> =>
  Records.inDatabase(
    settings,
    Threads.layer(settings.threads, options).pipe(
      Layer.provide(SqlThreadStore.layer),
      Layer.provide(Layer.sync(ThreadFiles, () => files(settings)))
    ),
    "threads cannot be looked up"
  )
