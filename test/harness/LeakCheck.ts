/**
 * Finds what a test must not leave behind: labelled containers, volumes and networks, and run directories.
 *
 * `layer` checks when its scope closes, so that a leak fails the test.
 */
import { assert } from "@effect/vitest"
import { formatOwner, label } from "@cogni/sandbox-core/ResourceLabels"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as RunEntries from "@cogni/sandbox-docker/RunEntries"
import { Effect, Layer } from "effect"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import * as Await from "./Await.ts"

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
          .filter((entry) => !RunEntries.keptEntries.includes(entry))
          .map((entry) => join(runs, run, entry))
      )
    : []
}

/** Paths of directories of waiting sandboxes, and of runs that got one. */
export const waiting = (stateDirectory: string): ReadonlyArray<string> => {
  const parent = join(stateDirectory, "waiting")
  return existsSync(parent) ? readdirSync(parent).map((name) => join(parent, name)) : []
}

/**
 * Waits for what is being removed in the background, by runs that have ended or by other tests of this process, and
 * returns the names of what stays.
 */
export const staying = Effect.gen(function* () {
  let found = yield* leftovers
  yield* Await.until(
    "nothing is left",
    Effect.map(leftovers, (now) => (found = now).length === 0)
  ).pipe(Effect.catchCause(() => Effect.void))
  return found
})

/** Fails if any such resource or path stays at the end. */
export const layer = (options: {
  readonly stateDirectory: string
}): Layer.Layer<never, never, DockerApi.DockerApi> =>
  Layer.effectDiscard(
    Effect.flatMap(DockerApi.DockerApi, (api) =>
      Effect.addFinalizer(() =>
        Effect.gen(function* () {
          const found = yield* staying
          const left = [...found, ...directories(options.stateDirectory), ...waiting(options.stateDirectory)]
          assert.deepStrictEqual(left, [], `left behind: ${left.join(", ")}`)
        }).pipe(Effect.provideService(DockerApi.DockerApi, api))
      )
    )
  )
