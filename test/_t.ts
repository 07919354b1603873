import { Effect, Layer } from "effect"
import * as Runner from "@cogni/sandbox-core/SandboxRunner"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as D from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as W from "@cogni/sandbox-docker/HostWorkspace"
import * as S from "@cogni/sandbox-docker/FileRunStore"
const L = Runner.layer.pipe(Layer.provide([D.layer(), W.layer(), S.layer({ directory: "/root/scratch/state" }), LlmProxy.layerNoop]))
await Effect.runPromise(Effect.gen(function* () {
  const r = yield* Runner.SandboxRunner
  for (let i = 0; i < 12; i++) {
    const x = yield* Effect.exit(r.run({ image: "cogni-sandbox/runtime:latest", argv: ["sh", "-c", process.argv[2]!], limits: { runtimeSecondsMax: 20, processesMax: 48, memoryBytesMax: 128 * 2 ** 20 } }))
    const e = (x as any).cause?.reasons[0].error.reason
    console.log(e?._tag ?? "ok", JSON.stringify(e?.partial ?? { ...(x as any).value.output, c: (x as any).value.exitCode, p: (x as any).value.peak }).slice(0, 300))
  }
}).pipe(Effect.provide(L)))
process.exit(0)
