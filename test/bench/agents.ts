/**
 * `./dev bench agents`: the cost of the sandbox, agent by agent.
 *
 *     --rounds N      runs of each agent (default 7)
 *     --output DIR    directory for agents.json and agents.md (default test/bench/results)
 *
 * Every agent asks one question, which a scripted model answers at once, so that only the agent and its sandbox are
 * measured. The agent's time is from its first instruction to its last. Our time is the rest of the run: workspace,
 * socket, container, posture, record, and the removal of all resources.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Effect, Layer, Redacted } from "effect"
import { execFileSync } from "node:child_process"
import { availableParallelism, loadavg, release } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as Images from "../harness/Images.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: { rounds: { type: "string", default: "7" }, output: { type: "string" } }
})
const rounds = Number(options.rounds)
const load = Math.round((loadavg()[0] ?? 0) * 10) / 10

interface Taken {
  readonly totalMs: number
  readonly agentMs: number
  readonly memoryBytes: number
}

const take = Effect.fnUntraced(function* (agentId: string) {
  const runId = yield* RunId.generate
  const before = yield* Clock.currentTimeNanos
  const { final } = yield* GraphHarness.told(GraphHarness.request({ graphId: `sandbox:${agentId}` }), runId)
  const totalMs = Number((yield* Clock.currentTimeNanos) - before) / 1e6
  if (!final.ok) return yield* Effect.die(new Error(`${agentId}: ${final.message ?? ""}`))
  const record = yield* (yield* RunStore).get(runId)
  const agentMs = record?.timings.find(({ phase }) => phase === "agent")?.durationMs ?? Number.NaN
  const memoryBytes = record?.outcome.status === "exited" ? (record.outcome.result.peak.memoryBytes ?? 0) : 0
  return { totalMs, agentMs, memoryBytes } satisfies Taken
})

const measured = Effect.gen(function* () {
  const agents = AgentRegistry.builtIn
  const taken = new Map<string, Array<Taken>>(agents.map(({ id }) => [id, []]))
  // The first run of each is not counted: it reads the image from the disk.
  for (let round = 0; round <= rounds; round++) {
    for (const { id } of Samples.rotate(agents, round)) {
      const one = yield* take(id)
      if (round > 0) taken.get(id)?.push(one)
    }
    process.stderr.write(`round ${round} of ${rounds}\n`)
  }
  return agents.map(({ id, image }) => {
    const all = taken.get(id) ?? []
    return {
      name: id,
      total: Samples.summarize(all.map(({ totalMs }) => totalMs)),
      agent: Samples.summarize(all.map(({ agentMs }) => agentMs)),
      ours: Samples.summarize(all.map(({ agentMs, totalMs }) => totalMs - agentMs)),
      memoryMegabytes: Math.round(Math.max(...all.map(({ memoryBytes }) => memoryBytes)) / 1e6),
      imageMegabytes: sizeOf(Images.ofAgent(image))
    }
  })
})

const sizeOf = (image: string): number =>
  Math.round(
    Number(
      execFileSync("docker", ["image", "inspect", "--format", "{{.Size}}", image], { encoding: "utf8" })
    ) / 1e6
  )

const report = Effect.fnUntraced(function* (rows: Effect.Success<typeof measured>) {
  const machine = {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    "load before": load,
    rounds
  }
  const takenAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const text = [
    "Milliseconds for one question, which a scripted model answers at once. All rows are measured in turns. Ours is the total without the agent's own time.",
    Report.table(
      ["agent", "total p50", "agent p50", "ours p50", "ours p95", "memory, MB", "image, MB"],
      rows.map((row) => [
        row.name,
        row.total.p50,
        row.agent.p50,
        row.ours.p50,
        row.ours.p95,
        row.memoryMegabytes,
        row.imageMegabytes
      ])
    ),
    Report.taken({ takenAt, machine })
  ].join("\n\n")
  Report.publish({
    name: "agents",
    title: "Agents, measured",
    text,
    data: { takenAt, machine, rows },
    directory: options.output ?? join(import.meta.dirname, "results")
  })
})

const main = Effect.gen(function* () {
  const { url } = yield* ScriptedModel.acquire(() => ({ say: "Hello." }))
  const proxy = GatewayLlmProxy.layer({ url, key: Redacted.make("sk-bench"), image: Images.gateway }).pipe(
    Layer.provide(UsageObserver.layerNone)
  )
  const rows = yield* measured.pipe(
    Effect.provide(GraphHarness.layer(proxy, { workspaceOf: () => ({ type: "temporary" }) }))
  )
  yield* report(rows)
})

NodeRuntime.runMain(Effect.scoped(main))
