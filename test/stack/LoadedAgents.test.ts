/** Agents that are loaded before their run, on real Docker: they know nothing of the load, and everything of their run. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import * as OpenCode from "../harness/agentTasks/OpenCode.ts"
import * as Await from "../harness/Await.ts"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as Images from "../harness/Images.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

const { agent, shell } = OpenCode.row

class Model extends Context.Service<Model, ScriptedModel.ScriptedModel>()("test/Model") {}

/** Prints what a command of the agent sees, and the arguments of the agent itself. */
const line = "env; tr '\\0' ' ' </proc/$PPID/cmdline; ls -A /tmp /dev/shm"

const script: ScriptedModel.Script = ({ index, results }) =>
  index === 0 ? { call: [shell(line)] } : { say: String(results.at(-1)) }

const image = Images.ofAgent(agent.image)
const keep = [{ image, ...(agent.preload === undefined ? {} : { preload: agent.preload }), count: 1 }]

const layerOfModel = Layer.effect(Model, ScriptedModel.acquire(script))

const layerOfProxy = Layer.unwrap(
  Model.useSync(({ url }) =>
    GatewayLlmProxy.layer({ url, key: Redacted.make("sk-loaded"), carrier: "directory" }).pipe(
      Layer.provide(UsageObserver.layerNone)
    )
  )
)

const layerOfAll = GraphHarness.layer(layerOfProxy, {
  workspaceOf: () => ({ type: "temporary" }),
  pool: { keep, limits: { sandboxesMax: 1 } }
}).pipe(Layer.provideMerge(layerOfModel))

layer(layerOfAll, { excludeTestServices: true, timeout: "5 minutes" })(
  "opencode, loaded before its run",
  (it) => {
    it.effect("does a task with the prompt and the variables of its run, and no trace of the load", () =>
      Effect.gen(function* () {
        const { report } = yield* SandboxPool.SandboxPool
        yield* Await.until(
          "a sandbox waits with opencode",
          Effect.map(report, ({ waiting }) => waiting.length === 1)
        )
        const runId = yield* RunId.generate
        const messages = [{ role: "user", content: "Look around." }] as const
        const { events, final } = yield* GraphHarness.told(
          GraphHarness.request({ graphId: `sandbox:${agent.id}`, messages }),
          runId
        )
        if (!final.ok) assert.fail(final.message)
        GraphHarness.isWhole(events)
        assert.strictEqual((yield* (yield* RunStore).get(runId))?.pool, "hit")
        const received = yield* (yield* Model).received
        assert.include(JSON.stringify(received[0]?.body), "Look around.")
        const seen = String(final.content)
        const task = {
          messages,
          model: "scripted",
          runId,
          workingDirectory: "/workspace",
          runtimeSecondsMax: 60
        }
        for (const [name, value] of Object.entries(agent.env(task)))
          assert.include(seen, `${name}=${value}\n`)
        assert.notMatch(seen, /BUN_INSPECT_PRELOAD|COGNI_(?:INIT|SOCKET)|^none$/mu)
      })
    )
  }
)
