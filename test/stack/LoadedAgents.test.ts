/** Agents of Bun that are loaded before their run, on real Docker: they know their run, and nothing of the load. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import type { AgentRow } from "../harness/agentTasks/AgentRow.ts"
import * as ClaudeCode from "../harness/agentTasks/ClaudeCode.ts"
import * as OpenCode from "../harness/agentTasks/OpenCode.ts"
import * as Await from "../harness/Await.ts"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as Images from "../harness/Images.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

class Model extends Context.Service<Model, ScriptedModel.ScriptedModel>()("test/Model") {}

/** Prints what a command of the agent sees, and the arguments of the agent itself. */
const line = `env; echo "agent: $(tr '\\0' ' ' </proc/$PPID/cmdline)"; ls -A /tmp /dev/shm`

const scriptOf =
  ({ shell }: AgentRow): ScriptedModel.Script =>
  ({ index, results }) =>
    index === 0 ? { call: [shell(line)] } : { say: String(results.at(-1)) }

const layerOfProxy = Layer.unwrap(
  Model.useSync(({ url }) =>
    GatewayLlmProxy.layer({ url, key: Redacted.make("sk-loaded"), carrier: "directory" }).pipe(
      Layer.provide(UsageObserver.layerNone)
    )
  )
)

const layerOf = (row: AgentRow) => {
  const { image, preload } = row.agent
  const shape = { image: Images.ofAgent(image), ...(preload === undefined ? {} : { preload }) }
  return GraphHarness.layer(layerOfProxy, {
    workspaceOf: () => ({ type: "temporary" }),
    pool: { keep: [{ ...shape, count: 1 }], limits: { sandboxesMax: 1 } }
  }).pipe(Layer.provideMerge(Layer.effect(Model, ScriptedModel.acquire(scriptOf(row)))))
}

for (const row of [ClaudeCode.row, OpenCode.row]) {
  const { agent } = row
  layer(layerOf(row), { excludeTestServices: true, timeout: "5 minutes" })(
    `${agent.name}, loaded before its run`,
    (it) => {
      it.effect("does a task with the prompt and the variables of its run, and no trace of the load", () =>
        Effect.gen(function* () {
          const { report } = yield* SandboxPool.SandboxPool
          yield* Await.until(
            `a sandbox waits with ${agent.name}`,
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
          assert.notMatch(seen, /BUN_(?:INSPECT_PRELOAD|OPTIONS)|COGNI_(?:INIT|SOCKET)|^none$/mu)
          // Without the options of its run, it is the process that was loaded.
          assert.match(seen, /^agent: \w+ ?$/mu)
        })
      )
    }
  )
}
