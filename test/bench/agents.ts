/**
 * `./dev bench agents`: the cost of the sandbox, agent by agent, and the time until each agent calls its model.
 *
 *     --rounds N      runs of each agent, cold and from the pool (default 30)
 *     --agents A,B    only these agents (default: all)
 *     --output DIR    directory for agents.json and agents.md (default test/bench/results)
 *
 * Every agent asks one question, which a scripted model answers at once, so that only the agent and its sandbox are
 * measured. The first call is the time from the request for a run until the model receives the agent's first call, with
 * everything that the host does before. The agent's time is from its first instruction to its last. Our time is the
 * rest of the run: workspace, socket, container, posture, record, and the removal of all resources.
 *
 * Exits with 1 if a bar is missed.
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
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Effect, Layer, Redacted } from "effect"
import { execFileSync } from "node:child_process"
import { availableParallelism, loadavg, release } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as Images from "../harness/Images.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "30" },
    agents: { type: "string" },
    output: { type: "string" }
  }
})
const rounds = Number(options.rounds)
const chosen = options.agents?.split(",")
const agents = AgentRegistry.builtIn.filter(({ id }) => chosen === undefined || chosen.includes(id))
const load = Math.round((loadavg()[0] ?? 0) * 10) / 10

/** Milliseconds from the request to the first call, from the pool, at most. */
const firstCallMillisMax: Readonly<Record<string, number>> = {
  codex: 300,
  "claude-code": 400,
  opencode: 800,
  openclaw: 1200
}

type Mode = "cold" | "pooled"

interface Taken {
  readonly firstCallMs: number
  readonly totalMs: number
  readonly agentMs: number
  readonly memoryBytes: number
}

/** When the model received the first call since this was cleared. */
const first: { millis: number | undefined } = { millis: undefined }

const answer = ScriptedModelApi.turns(() => ({ say: "Hello." }))

const script: ScriptedModelApi.Script = (asked) => {
  first.millis ??= performance.now()
  return answer(asked)
}

const take = Effect.fnUntraced(function* (agentId: string, mode: Mode, isCounted: boolean) {
  const runId = yield* RunId.generate
  first.millis = undefined
  const before = performance.now()
  const { final } = yield* GraphHarness.told(GraphHarness.request({ graphId: `sandbox:${agentId}` }), runId)
  const totalMs = performance.now() - before
  if (!final.ok) return yield* Effect.die(new Error(`${agentId}: ${final.message ?? ""}`))
  const record = yield* (yield* RunStore).get(runId)
  if (isCounted && mode === "pooled" && record?.pool !== "hit")
    return yield* Effect.die(new Error(`${agentId} started cold: ${record?.pool ?? "there is no pool"}`))
  return {
    firstCallMs: (first.millis ?? Number.NaN) - before,
    totalMs,
    agentMs: record?.timings.find(({ phase }) => phase === "agent")?.durationMs ?? Number.NaN,
    memoryBytes: record?.outcome.status === "exited" ? (record.outcome.result.peak.memoryBytes ?? 0) : 0
  } satisfies Taken
})

/** Each agent may load its code for two minutes, one after the other. */
const readySecondsMax = 600

/** Waits until a sandbox waits for each agent, and none is being removed. */
const ready = Effect.gen(function* () {
  const { report } = yield* SandboxPool.SandboxPool
  for (;;) {
    const { removing, waiting } = yield* report
    if (removing === 0 && new Set(waiting.map(({ image }) => image)).size === agents.length) return
    yield* Effect.sleep("5 millis")
  }
}).pipe(
  Effect.timeoutOrElse({
    duration: `${readySecondsMax} seconds`,
    orElse: () =>
      Effect.flatMap(SandboxPool.SandboxPool, ({ report }) => report).pipe(
        Effect.flatMap(({ failure, waiting }) =>
          Effect.die(
            new Error(
              `after ${readySecondsMax} s, only ${waiting.map(({ image }) => image).join(", ")} wait: ${failure ?? "no failure"}`
            )
          )
        )
      )
  })
)

/** Enough for every agent with its code loaded. */
const memoryBytesMax = 6 * 1024 ** 3

const layerOf = <E>(proxy: Layer.Layer<LlmProxy, E, ContainerRuntime>, mode: Mode) =>
  GraphHarness.layer(proxy, {
    workspaceOf: () => ({ type: "temporary" }),
    pool: mode === "cold" ? undefined : { limits: { sandboxesMax: agents.length, memoryBytesMax } }
  })

const measured = Effect.fnUntraced(function* <E>(proxy: Layer.Layer<LlmProxy, E, ContainerRuntime>) {
  const taken = new Map<string, Array<Taken>>()
  const cold = yield* Layer.build(layerOf(proxy, "cold"))
  const pooled = yield* Layer.build(layerOf(proxy, "pooled"))
  // The first run of each is not counted: it reads the image from the disk, and the pool learns from it.
  for (let round = 0; round <= rounds; round++) {
    for (const { id } of Samples.rotate(agents, round)) {
      for (const mode of ["cold", "pooled"] as const) {
        if (round > 0) yield* Effect.provide(ready, pooled)
        const one = yield* Effect.provide(take(id, mode, round > 0), mode === "cold" ? cold : pooled)
        const key = `${id} ${mode}`
        if (round > 0) taken.set(key, [...(taken.get(key) ?? []), one])
      }
    }
    process.stderr.write(`round ${round} of ${rounds}\n`)
  }
  return agents.map(({ id, image }) => {
    const summarize = (mode: Mode, of: (one: Taken) => number) =>
      Samples.summarize((taken.get(`${id} ${mode}`) ?? []).map(of))
    const all = taken.get(`${id} cold`) ?? []
    return {
      name: id,
      firstCall: summarize("cold", ({ firstCallMs }) => firstCallMs),
      firstCallPooled: summarize("pooled", ({ firstCallMs }) => firstCallMs),
      total: summarize("cold", ({ totalMs }) => totalMs),
      totalPooled: summarize("pooled", ({ totalMs }) => totalMs),
      agent: summarize("cold", ({ agentMs }) => agentMs),
      ours: summarize("cold", ({ agentMs, totalMs }) => totalMs - agentMs),
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

const report = Effect.fnUntraced(function* (rows: Effect.Success<ReturnType<typeof measured>>) {
  const machine = {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    "load before": load,
    rounds
  }
  const takenAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const bars = rows.flatMap(({ firstCallPooled, name }): ReadonlyArray<Report.Bar> => {
    const atMost = firstCallMillisMax[name]
    const bar = { name: `first call of ${name}, from the pool, p50 ms`, value: firstCallPooled.p50 }
    return atMost === undefined ? [] : [{ ...bar, atMost }]
  })
  const text = [
    "Milliseconds for one question, which a scripted model answers at once. All rows are measured in turns. The first call is the time from the request for a run until the model receives the agent's first call. Ours is the total of a cold run without the agent's own time.",
    Report.table(
      [
        "agent",
        "first call, cold, p50",
        "first call, pooled, p50",
        "first call, pooled, p95",
        "total, cold, p50",
        "total, pooled, p50",
        "agent p50",
        "ours p50",
        "ours p95",
        "memory, MB",
        "image, MB"
      ],
      rows.map((row) => [
        row.name,
        row.firstCall.p50,
        row.firstCallPooled.p50,
        row.firstCallPooled.p95,
        row.total.p50,
        row.totalPooled.p50,
        row.agent.p50,
        row.ours.p50,
        row.ours.p95,
        row.memoryMegabytes,
        row.imageMegabytes
      ])
    ),
    Report.barTable(bars),
    Report.taken({ takenAt, machine })
  ].join("\n\n")
  Report.publish({
    name: "agents",
    title: "Agents, measured",
    text,
    data: { takenAt, machine, rows, bars },
    bars,
    directory: options.output ?? join(import.meta.dirname, "results")
  })
})

const main = Effect.gen(function* () {
  const { url } = yield* ScriptedModelApi.acquire({ raw: true, script })
  const proxy = GatewayLlmProxy.layer({ url, key: Redacted.make("sk-bench"), carrier: "directory" }).pipe(
    Layer.provide(UsageObserver.layerNone)
  )
  yield* report(yield* measured(proxy))
})

NodeRuntime.runMain(Effect.scoped(main))
