/** Answers of an engine that must not be trusted. */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import { Effect } from "effect"
import { createServer } from "node:net"
import { join } from "node:path"
import { docker } from "../harness/Docker.ts"
import * as RunHarness from "../harness/RunHarness.ts"

layer(RunHarness.layer(), { excludeTestServices: true })("an engine's answers", (it) => {
  it.effect("fails if a volume belongs to another run, and does not touch it", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const runId = yield* RunId.generate
      const name = `cogni-${runId}-socket`
      yield* Effect.acquireRelease(docker("volume", "create", name), () => docker("volume", "rm", name))
      const error = yield* Effect.flip(
        Effect.scoped(
          runtime.acquireVolume({
            runId,
            role: "socket",
            owner: { userId: 999, groupId: 999 },
            bytesMax: 65_536,
            filesMax: 8,
            runtimeSecondsMax: 60
          })
        )
      )
      assert.strictEqual(error._tag, "ContainerFailed")
      assert.match(error.message, /already in use.*Another run has this id/su)
      assert.strictEqual(yield* docker("volume", "ls", "-q", "--filter", `name=${name}`), name)
    })
  )

  it.effect("times out if the engine accepts a connection and never answers", () =>
    Effect.gen(function* () {
      const path = join(yield* RunHarness.Directory, "silent.sock")
      yield* Effect.acquireRelease(
        Effect.promise(
          () =>
            new Promise<ReturnType<typeof createServer>>((resolve) => {
              const server = createServer(() => undefined).listen(path, () => resolve(server))
            })
        ),
        (server) => Effect.sync(() => server.close())
      )
      const error = yield* DockerApi.DockerApi.use((api) => api.ping).pipe(
        Effect.flip,
        Effect.provide(DockerApi.layer({ host: `unix://${path}` }), { local: true }),
        Effect.timeout("5 minutes")
      )
      assert.strictEqual(error._tag, "RuntimeUnavailable")
      assert.match(error.message, /did not answer "ping" in time/u)
    })
  )
})
