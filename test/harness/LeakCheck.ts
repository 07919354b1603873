/**
 * Finds what a test must not leave behind: labelled containers, volumes and networks, and run directories.
 *
 * `layer` checks when its scope closes, so that a leak fails the test.
 */
import { assert } from "@effect/vitest"
import { formatOwner, label } from "@cogni/sandbox-core/ResourceLabels"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { Effect, Layer } from "effect"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"

/** Names of the resources on the engine that runs of this process have left behind. */
export const leftovers = DockerApi.DockerApi.use((api) => api.labelled(label.run)).pipe(
  Effect.map((found) => {
    const own = formatOwner(HostOwner.self())
    return found
      .filter(({ labels }) => labels[label.owner] === own)
      .map(({ kind, name }) => `${kind} ${name}`)
  }),
  Effect.orDie
)

/** Paths in run directories that only an active run may have: all entries that are not known to stay. */
export const directories = (stateDirectory: string): ReadonlyArray<string> => {
  const runs = join(stateDirectory, "runs")
  return existsSync(runs)
    ? readdirSync(runs).flatMap((run) =>
        readdirSync(join(runs, run))
          .filter((entry) => !FileRunStore.keptEntries.includes(entry))
          .map((entry) => join(runs, run, entry))
      )
    : []
}

/** Fails if any such resource or path exists at the end. */
export const layer = (options: {
  readonly stateDirectory: string
}): Layer.Layer<never, never, DockerApi.DockerApi> =>
  Layer.effectDiscard(
    Effect.flatMap(DockerApi.DockerApi, (api) =>
      Effect.addFinalizer(() =>
        Effect.map(leftovers, (found) => {
          assert.deepStrictEqual([...found, ...directories(options.stateDirectory)], [], "left behind")
        }).pipe(Effect.provideService(DockerApi.DockerApi, api))
      )
    )
  )
