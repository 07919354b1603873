/**
 * A complete runner over real Docker, in a state directory that is removed after the tests, with a check for leaks.
 */
import type { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import { layerNoop } from "@cogni/sandbox-core/LlmProxy"
import type * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostSandboxPool from "@cogni/sandbox-docker/HostSandboxPool"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import { Context, Effect, Layer } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Engine from "./Engine.ts"
import * as LeakCheck from "./LeakCheck.ts"

/** Directory for the directories of waiting sandboxes. */
export const waitingIn = (directory: string) => join(directory, "waiting")

/** A directory of the host that is removed after the tests. */
export class Directory extends Context.Service<Directory, string>()("test/Directory") {
  static readonly layer = Layer.effect(
    Directory,
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    )
  )
}

/**
 * A runner over the machine's engine. `proxy` is the egress; without it, runs have no egress. With `pool`, sandboxes wait
 * for runs.
 */
export const layer = <E = never, R = never>(
  proxy: Layer.Layer<LlmProxy, E, R> = layerNoop as Layer.Layer<LlmProxy, E, R>,
  pool?: SandboxPool.PoolOptions
) => {
  const store = Layer.unwrap(
    Effect.map(Directory, (directory) => FileRunStore.layer({ directory, trafficOf: AuditTraffic.reader() }))
  )
  const leaks = Layer.unwrap(Effect.map(Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory })))
  const workspaces = Layer.unwrap(
    Effect.map(Directory, (directory) => HostWorkspace.layer({ waiting: waitingIn(directory) }))
  )
  return SandboxRunner.layer.pipe(
    Layer.provideMerge(pool === undefined ? Layer.empty : HostSandboxPool.layer(pool)),
    Layer.provide(proxy),
    Layer.provideMerge(Layer.mergeAll(DockerContainerRuntime.layerApi(Engine.runtime), workspaces, store)),
    Layer.provideMerge(leaks),
    Layer.provideMerge(Layer.merge(Engine.api(), Directory.layer))
  )
}
