/**
 * Part of an application for a bundler. `package.test.ts` copies it out of this repository, bundles it and runs it.
 *
 * Sends conversations of three sizes through a gateway to a scripted model. Reports the size of each, the status of its
 * answer, and whether the model received all of it.
 */
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { DockerContainerRuntime } from "@cogni/sandbox-docker"
import { GatewayLlmProxy, ScriptedModelApi } from "@cogni/sandbox-proxy"
import { Effect, Redacted } from "effect"
import { request } from "node:http"

/** The smallest is inspected where it arrives, the others in two other threads. */
const sizes = [1000, 300_000, 2_000_000]

const ask = (socketPath: string, bytes: number): Effect.Effect<number | undefined> =>
  Effect.callback((resume) => {
    const headers = { "content-type": "application/json" }
    const path = "/v1/chat/completions"
    const sent = request({ socketPath, path, method: "POST", headers }, (response) => {
      response.resume().once("end", () => resume(Effect.succeed(response.statusCode)))
    })
    sent.once("error", () => resume(Effect.succeed(undefined)))
    sent.end(
      JSON.stringify({ model: "scripted", messages: [{ role: "user", content: "word ".repeat(bytes / 5) }] })
    )
  })

const program = Effect.gen(function* () {
  const upstream = yield* ScriptedModelApi.acquire({ script: ScriptedModelApi.steps([{ _tag: "Answer" }]) })
  const proxy = yield* GatewayLlmProxy.make({
    url: upstream.url,
    key: Redacted.make("no-key-of-anybody")
  }).pipe(Effect.provide(UsageObserver.layerNone))
  const endpoint = yield* proxy.acquire({
    runId: yield* RunId.generate,
    llm: {
      model: "scripted",
      models: {},
      identity: { billingAccountId: "bundled", attempt: 0 },
      unknownFields: "drop",
      caller: "sandbox"
    },
    runtimeSecondsMax: 60,
    tools: [],
    canaries: { policy: "off", planted: [] },
    observe: () => Effect.void
  })
  yield* endpoint.ready
  const lines: Array<string> = []
  for (const [index, bytes] of sizes.entries()) {
    const status = yield* ask(`${endpoint.mounts[0]!.source}/llm.sock`, bytes)
    const arrived = (yield* upstream.received)[index]?.bodyBytes ?? 0
    lines.push(`${bytes} ${status} ${arrived > bytes}`)
  }
  yield* endpoint.finish
  return [...lines, typeof DockerContainerRuntime.layer, ""].join("\n")
})

export const converse = (): Promise<string> =>
  Effect.runPromise(Effect.scoped(Effect.provide(program, MemoryContainerRuntime.layer())))
