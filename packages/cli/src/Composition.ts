/**
 * The packages, put together as the environment says. No logic of its own.
 */
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { layerNoop, type LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import type { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxError"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import { Context, Effect, Layer, Redacted } from "effect"
import type { WayOut } from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"

/** What the demo upstream received; `undefined` where another upstream was asked. @category services */
export class DemoWitness extends Context.Service<
  DemoWitness,
  { readonly received: Effect.Effect<ReadonlyArray<DemoUpstream.Received> | undefined> }
>()("@cogni/sandbox-cli/DemoWitness") {}

/** What running needs. @category models */
export type Runner =
  | SandboxRunner.SandboxRunner
  | RunStore
  | DockerReaper.DockerReaper
  | DockerApi.DockerApi
  | DemoWitness

/** @category layers */
export const engine = (settings: Settings["Service"]): Layer.Layer<DockerApi.DockerApi, RuntimeUnavailable> =>
  DockerApi.layer(settings.dockerHost === undefined ? {} : { host: settings.dockerHost })

/** @category layers */
export const reaper = (
  settings: Settings["Service"]
): Layer.Layer<DockerReaper.DockerReaper | DockerApi.DockerApi, RuntimeUnavailable> =>
  Layer.provideMerge(DockerReaper.layerApi, engine(settings))

/** @category layers */
export const store = (settings: Settings["Service"]): Layer.Layer<RunStore> =>
  FileRunStore.layer({ directory: settings.stateDirectory })

/** @category layers */
export const runner = (
  settings: Settings["Service"],
  wayOut: WayOut
): Layer.Layer<Runner, RuntimeUnavailable> =>
  SandboxRunner.layer.pipe(
    Layer.provideMerge(proxy(settings, wayOut)),
    Layer.provideMerge(
      Layer.mergeAll(
        DockerContainerRuntime.layerApi(),
        HostWorkspace.layer({ forbidden: [settings.stateDirectory] }),
        store(settings)
      )
    ),
    Layer.provideMerge(reaper(settings))
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const noWitness = Layer.succeed(DemoWitness, { received: Effect.succeed(undefined) })

const nginx = (settings: Settings["Service"], url: string, key: Redacted.Redacted<string>) =>
  NginxLlmProxy.layer({ image: settings.proxyImage, upstream: { type: "host", url }, key })

const proxy = (
  settings: Settings["Service"],
  wayOut: WayOut
): Layer.Layer<LlmProxy | DemoWitness, never, ContainerRuntime> => {
  switch (wayOut._tag) {
    case "None":
      return Layer.merge(layerNoop, noWitness)
    case "Upstream":
      return Layer.merge(nginx(settings, wayOut.url, wayOut.key), noWitness)
    case "Demo":
      return Layer.unwrap(
        Effect.map(DemoUpstream.acquire(), ({ received, url }) =>
          Layer.merge(
            nginx(settings, url ?? "", Redacted.make(`demo-${crypto.randomUUID()}`)),
            Layer.succeed(DemoWitness, { received })
          )
        )
      )
  }
}
