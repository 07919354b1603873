/**
 * Agents whose code is loaded in a sandbox that waits: each asks its model the same as without, answers the same, and
 * gets a run with other variables too.
 */
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import * as Await from "../harness/Await.ts"
import * as GraphHarness from "../harness/GraphHarness.ts"

const agents = AgentRegistry.builtIn.filter(({ preload }) => preload !== undefined)

const script = ScriptedModelApi.turns(() => ({ say: "Hello." }))

/** A request without what differs between any two runs: IDs, times, and names of files. */
const plain = (body: unknown) =>
  JSON.stringify(body)
    .replace(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/gu, "ID")
    .replace(/\d{4}-\d\d-\d\d|\d\d:\d\d(?::\d\d)?/gu, "TIME")
    .replace(/[0-9a-f]{32,64}/gu, "HASH")
    .replace(/cch=\w+/gu, "")
    .replace(/run-[0-9a-z]{12}/gu, "RUN")
    .replace(/host=[0-9a-f]{12}/gu, "HOST")

const layerOf = (proxy: Layer.Layer<LlmProxy, unknown, ContainerRuntime>, isPooled: boolean) =>
  GraphHarness.layer(proxy, {
    workspaceOf: () => ({ type: "temporary" }),
    pool: isPooled ? { limits: { sandboxesMax: 1 } } : undefined
  })

const ready = Await.until(
  "a sandbox waits with its program",
  Effect.map(
    SandboxPool.SandboxPool.use(({ report }) => report),
    ({ waiting }) => waiting.length === 1
  )
)

for (const agent of agents) {
  it.live(`${agent.name} asks and answers the same, loaded before its run or not`, () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModelApi.acquire({ raw: true, script })
      const proxy = GatewayLlmProxy.layer({
        url: model.url,
        key: Redacted.make("sk-test"),
        carrier: "directory"
      }).pipe(Layer.provide(UsageObserver.layerNone))
      const told = Effect.gen(function* () {
        const runId = yield* RunId.generate
        const before = (yield* model.received).length
        const { final } = yield* GraphHarness.told(
          GraphHarness.request({ graphId: `sandbox:${agent.id}` }),
          runId
        )
        const record = yield* (yield* RunStore).get(runId)
        const asked = (yield* model.received).slice(before).map(({ body }) => plain(body))
        return { final, asked, pool: record?.pool }
      })
      const cold = yield* Effect.provide(told, layerOf(proxy, false))
      const [, pooled] = yield* Effect.provide(
        Effect.all([told, Effect.andThen(ready, told)]),
        layerOf(proxy, true)
      )
      assert.isTrue(cold.final.ok && pooled.final.ok, JSON.stringify([cold.final, pooled.final]))
      assert.strictEqual(pooled.pool, "hit")
      assert.deepStrictEqual(pooled.final.content, cold.final.content)
      assert.deepStrictEqual(pooled.asked, cold.asked)
    }).pipe(Effect.scoped)
  )
}
