/** The nginx of a run, without the run, for the time of a measurement. */
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import { Effect, Exit, Redacted, Scope } from "effect"
import { mkdtempSync } from "node:fs"
import { join } from "node:path"

export interface Started {
  /** Volume with its socket. */
  readonly source: string
  readonly stop: () => Promise<void>
}

export const start = (options: {
  readonly url: string
  readonly image: string
  readonly directory: string
}): Promise<Started> =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const endpoint = yield* Effect.gen(function* () {
      const proxy = yield* NginxLlmProxy.make({
        image: options.image,
        upstream: { type: "host", url: options.url },
        key: Redacted.make("sk-bench"),
        requestsPerSecondMax: 10_000,
        concurrentRequestsMax: 500
      }).pipe(Effect.provide(UsageObserver.layerNone))
      const acquired = yield* proxy.acquire(
        LlmProxyContract.requestOf(yield* RunId.generate, {
          directory: mkdtempSync(join(options.directory, "nginx-")),
          runtimeSecondsMax: 3600
        })
      )
      yield* acquired.ready
      return acquired
    }).pipe(Effect.provide(DockerContainerRuntime.layer()), Scope.provide(scope))
    return {
      source: endpoint.mounts[0]!.source,
      stop: () => Effect.runPromise(Scope.close(scope, Exit.void))
    }
  }).pipe(Effect.runPromise)
