/** Facts about this host for the workers of Temporal: an ID that no other host has, and which agents' images are missing. */
import { ImageNotFound } from "@cogni/sandbox-core/SandboxReason"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { DockerApi } from "@cogni/sandbox-docker/DockerApi"
import { AgentRegistry } from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { ofRegistry } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import { HostFacts } from "@cogni/sandbox-server/HostFacts"
import { Effect, FileSystem, Layer, Result } from "effect"
import { dirname } from "node:path"
import * as CheckoutCommands from "./CheckoutCommands.ts"
import type { Settings } from "./Settings.ts"

const idForm = /^[0-9a-f-]{36}$/u

/** Returns the ID of a state directory, which is made once. `undefined`: it can be neither read nor written. */
export const hostIdOf = Effect.fnUntraced(function* (stateDirectory: string) {
  const files = yield* FileSystem.FileSystem
  const path = StateDirectory.paths(stateDirectory).hostId
  yield* Effect.tryPromise(async () => {
    await OwnFiles.makeDirectory(dirname(path))
    await OwnFiles.create(path, `${crypto.randomUUID()}\n`)
  }).pipe(
    // It exists, or the directory cannot be written.
    Effect.ignore
  )
  const text = yield* files.readFileString(path).pipe(Effect.orElseSucceed(() => ""))
  return idForm.test(text.trim()) ? text.trim() : undefined
})

/** Whether a run would pull an image that is missing. */
const isPullable = ({ images }: Pick<Settings["Service"], "images">, image: string): boolean =>
  Result.isSuccess(images) && images.success.policy.pull === "missing" && image.includes("@sha256:")

const isPresent = (
  { imageId }: Pick<DockerApi["Service"], "imageId">,
  settings: Pick<Settings["Service"], "images">,
  image: string
) =>
  Effect.match(imageId(image), {
    onSuccess: (found) => found !== undefined || isPullable(settings, image),
    // An engine that does not answer says nothing about its images. The run would find out.
    onFailure: () => true
  })

/** Describes a missing runtime image, which would otherwise be found by the first run that needs it. */
export const runtimeProblem = (
  engine: Pick<DockerApi["Service"], "imageId">,
  settings: Pick<Settings["Service"], "images" | "runtimeImage">
): Effect.Effect<string | undefined> =>
  Effect.map(isPresent(engine, settings, settings.runtimeImage), (found) =>
    found
      ? undefined
      : "runs that need the runtime image will fail: " +
        CheckoutCommands.forUser(new ImageNotFound({ image: settings.runtimeImage }).message)
  )

export const layer = (
  settings: Settings["Service"]
): Layer.Layer<never, never, DockerApi | AgentRegistry | FileSystem.FileSystem> =>
  Layer.effect(
    HostFacts,
    Effect.gen(function* () {
      const engine = yield* DockerApi
      const registry = yield* AgentRegistry
      const graphIds = ofRegistry(registry).map(({ graphId }) => graphId)
      const missing = Effect.filter(
        registry.list.map(({ image }, index) => ({ image, graphId: graphIds[index]! })),
        ({ image }) => Effect.map(isPresent(engine, settings, settings.imageOf(image)), (found) => !found),
        { concurrency: 4 }
      ).pipe(Effect.map((all) => all.map(({ graphId }) => graphId)))
      return { hostId: yield* hostIdOf(settings.stateDirectory), missingGraphIds: missing }
    })
  )
