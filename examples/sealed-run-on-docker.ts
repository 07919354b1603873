/**
 * A run on a real Docker Engine: a shell looks around in a sealed container.
 *
 * Needs Docker and the runtime image: `./dev setup`, then `pnpm example sealed-run-on-docker`. Outside of a checkout,
 * build the image with `npx @cogni/sandbox-cli images build`.
 */
import { LlmProxy, SandboxRunner } from "@cogni/sandbox-core"
import { DockerContainerRuntime, FileRunStore, HostWorkspace } from "@cogni/sandbox-docker"
import { Config, Effect, Layer } from "effect"
import { tmpdir } from "node:os"
import { join } from "node:path"

const docker = SandboxRunner.layer.pipe(
  Layer.provide([
    // Removes what killed programs left. Their containers have ended by themselves.
    DockerContainerRuntime.layer(),
    FileRunStore.layer({
      directory: join(tmpdir(), "cogni-sandbox-example"),
      trafficOf: "unknown"
    }),
    HostWorkspace.layer(),
    // The spec has no model, so the run has no egress at all.
    LlmProxy.layerNoop
  ])
)

const program = Effect.gen(function* () {
  const image = yield* Config.String("COGNI_RUNTIME_IMAGE").pipe(
    Config.withDefault("cogni-sandbox/runtime:latest")
  )
  const runner = yield* SandboxRunner.SandboxRunner
  const result = yield* runner.run({
    image,
    argv: ["bash", "-c", "id; ls /sys/class/net; touch /etc/x; echo done > note.txt; cat note.txt"],
    limits: { runtimeSecondsMax: 30 }
  })
  console.log(result.output.stdout.text + result.output.stderr.text)
  console.log(
    `isolation confirmed by ${result.posture.confirmedBy.join(", ")}; ${Math.round(result.durationMs)} ms`
  )
})

await Effect.runPromise(program.pipe(Effect.provide(docker)))
